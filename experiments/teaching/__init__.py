"""Teaching the embedded policy, and surveying what it writes."""
