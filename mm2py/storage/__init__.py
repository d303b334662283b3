"""
Internal topics: what a flow keeps in them, and how they are created and read.

What connectors are to do is stored in two ways. A worker's connectors are the same for all its nodes, which follow
them; they change under the transactional id of Java's leader, so that Java's workers and ours exclude each other.
Overrides are one flow's, read when it starts and when another node reports later ones: a node of many flows keeps no
connection for them, and needs no transactional id, as revisions decide who was first.
"""
