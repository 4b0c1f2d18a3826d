"""Decisions: pure functions over values. No clock, disk, network or chance in here."""
