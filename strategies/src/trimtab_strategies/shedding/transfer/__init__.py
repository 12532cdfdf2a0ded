"""TransferShedder: the shedder, the brokers' top-k load reports, and how brokers are matched."""
