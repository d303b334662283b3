"""Other mirrors' configuration files, as lines of an ``mm2.properties``."""
