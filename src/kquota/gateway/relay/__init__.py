"""Requests and answers on their way between a client and a broker."""
