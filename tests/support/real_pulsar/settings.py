"""Configuration files of a small, fast cluster on loopback: ZooKeeper, one bookie, brokers of either load manager."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from trimtab_testbed.servers.processes import HOST

CLUSTER = "e2e"
"""Name of the cluster in ``/admin/v2/clusters``."""

Settings = Mapping[str, object]

_PATIENT = 120_000
"""Milliseconds for which a bookie may be silent, on a machine that is shared with other work."""


class LoadManagerKind(StrEnum):
    """Which of Pulsar's two load managers the brokers run."""

    MODULAR = "modular"
    EXTENSIBLE = "extensible"

    @property
    def class_name(self) -> str:
        """Value of ``loadManagerClassName``."""
        package = "org.apache.pulsar.broker.loadbalance"
        inside = {"modular": "impl.ModularLoadManagerImpl", "extensible": "extensions.ExtensibleLoadManagerImpl"}
        return f"{package}.{inside[self.value]}"


LOG4J = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} [%t] %-5p %c{1} - %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""


def written(settings: Settings) -> str:
    """Text of a properties file, with booleans in lower case, as in Java."""
    return "".join(f"{key}={str(v).lower() if isinstance(v, bool) else v}\n" for key, v in settings.items())


def zookeeper(port: int, data: Path) -> dict[str, object]:
    """Settings of one ZooKeeper server, whose data need not survive a crash of the machine."""
    return {
        "tickTime": 2000,
        "dataDir": data,
        "clientPort": port,
        "clientPortAddress": HOST,
        "admin.enableServer": False,
        "forceSync": "no",
        "4lw.commands.whitelist": "ruok",
        "maxClientCnxns": 0,
        "snapshot.trust.empty": True,
        "maxSessionTimeout": _PATIENT,
    }


def bookie(port: int, zookeeper_port: int, data: Path) -> dict[str, object]:
    """Settings of one bookie with small caches, which does not wait for the disk."""
    return {
        "bookiePort": port,
        "metadataServiceUri": f"metadata-store:zk:{HOST}:{zookeeper_port}",  # with /ledgers the bookie finds no cluster
        "zkTimeout": _PATIENT,  # after a lost session, a bookie removes its own registration again and again
        "journalDirectory": data / "journal",
        "ledgerDirectories": data / "ledgers",
        "allowLoopback": True,
        "listeningInterface": "lo",
        "advertisedAddress": HOST,
        "journalSyncData": False,
        "journalWriteBufferSizeKB": 64,
        "journalPreAllocSizeMB": 4,
        "logSizeLimit": 32 * 2**20,
        "diskUsageThreshold": 0.99,
        "diskUsageWarnThreshold": 0.98,
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "dbStorage_writeCacheMaxSizeMb": 16,
        "dbStorage_readAheadCacheMaxSizeMb": 16,
        "dbStorage_rocksDB_blockCacheSize": 8 * 2**20,
        "dbStorage_rocksDB_writeBufferSizeMB": 8,
        "numAddWorkerThreads": 1,
        "numReadWorkerThreads": 1,
        "numHighPriorityWorkerThreads": 1,
        "httpServerEnabled": False,
        "autoRecoveryDaemonEnabled": False,
        "enableStatistics": False,
        "bookieDeathWatchInterval": 1000,
    }


def broker(load_manager: LoadManagerKind, zookeeper_port: int) -> dict[str, object]:
    """Settings, without ports, of a broker that reports its load every two seconds and balances nothing by itself."""
    return {
        **_place(zookeeper_port),
        **_SMALL,
        **_QUICK,
        **_HANDS_OFF,
        "loadManagerClassName": load_manager.class_name,
        # The extensible load manager keeps owners in a system topic. The modular one needs no system topics, and starts
        # faster without them.
        "topicLevelPoliciesEnabled": load_manager is LoadManagerKind.EXTENSIBLE,
        "systemTopicEnabled": load_manager is LoadManagerKind.EXTENSIBLE,
    }


def _place(zookeeper_port: int) -> dict[str, object]:
    return {
        "metadataStoreUrl": f"zk:{HOST}:{zookeeper_port}",
        "configurationMetadataStoreUrl": f"zk:{HOST}:{zookeeper_port}",
        "clusterName": CLUSTER,
        "bindAddress": HOST,
        "advertisedAddress": HOST,
    }


_SMALL = {
    "managedLedgerDefaultEnsembleSize": 1,
    "managedLedgerDefaultWriteQuorum": 1,
    "managedLedgerDefaultAckQuorum": 1,
    "managedLedgerCacheSizeMB": 16,
    "numIOThreads": 2,
    "numOrderedExecutorThreads": 2,
    "numHttpServerThreads": 8,
    "numCacheExecutorThreadPoolSize": 2,
    "numExecutorThreadPoolSize": 2,
    "bookkeeperNumberOfChannelsPerBookie": 1,
    "bookkeeperClientNumWorkerThreads": 1,
    "bookkeeperClientNumIoThreads": 1,
    "bookkeeperClientHealthCheckEnabled": False,  # there is no other bookie to switch to
    "brokerDeleteInactiveTopicsEnabled": False,
    "forceDeleteNamespaceAllowed": True,
}
_QUICK = {
    "metadataStoreSessionTimeoutMillis": 6000,  # a killed broker leaves the list after this time; 30 s by default
    "brokerShutdownTimeoutMs": 5000,
    "statsUpdateFrequencyInSecs": 2,  # reported rates are averages over this time; 60 s by default
    "statsUpdateInitialDelayInSecs": 2,
    "loadBalancerReportUpdateMinIntervalMillis": 1000,
    "loadBalancerReportUpdateThresholdPercentage": 0,
    "loadBalancerHostUsageCheckIntervalMinutes": 1,  # the minimum
    "loadBalancerOverrideBrokerNicSpeedGbps": 1,
    "exposeTopicLevelMetricsInPrometheus": True,
    "exposeBundlesMetricsInPrometheus": True,
}
_HANDS_OFF = {
    "loadBalancerEnabled": True,
    "loadBalancerSheddingEnabled": False,
    "loadBalancerAutoBundleSplitEnabled": False,
    "loadBalancerAutoUnloadSplitBundlesEnabled": False,
}
