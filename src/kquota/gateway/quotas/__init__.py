"""What the quotas make of requests, at each broker; and who may see and change them."""
