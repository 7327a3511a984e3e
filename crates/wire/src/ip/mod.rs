//! Views of IP packets.
