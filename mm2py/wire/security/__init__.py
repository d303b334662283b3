"""TLS and SASL: how a connection is let in."""
