"""Consumer groups: their offsets, their coordinators, and being a member of one."""
