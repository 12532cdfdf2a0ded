"""Reading Prometheus and the brokers: queries, the HTTP client, parsed answers, and the reader of one shard."""
