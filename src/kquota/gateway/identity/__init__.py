"""Who a connection is: its login as it passes by, its certificate, its address."""
