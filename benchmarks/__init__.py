"""Measurements for those who develop this project; nothing imports them."""
