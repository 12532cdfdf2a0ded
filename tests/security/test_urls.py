"""Only what the administrator listed can be named by a policy, however the URL is spelt."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given, strategies as st
from urllib3.util import parse_url

from trimtab_operator.resources.urls import SERVICES_ALONE, AllowedUrls, BadPatternError, RefusedUrlError


def asked(url: str, *patterns: str, secrets: bool = True) -> str:
    """What a policy of the namespace messaging that names `url` leads to."""
    return AllowedUrls.of(patterns).admit(url, "messaging", secrets=secrets)


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("http://prometheus.monitoring.svc:9090", "http://prometheus.monitoring.svc:9090"),
        ("https://mimir.monitoring.svc/prometheus", "https://mimir.monitoring.svc/prometheus"),
        (
            "http://prometheus.monitoring.svc.cluster.local:9090/",
            "http://prometheus.monitoring.svc.cluster.local:9090/",
        ),
        ("HTTP://Prometheus.Monitoring.SVC:9090/Path", "http://prometheus.monitoring.svc:9090/Path"),
        ("http://prometheus.monitoring.svc.:9090", "http://prometheus.monitoring.svc:9090"),
        ("http://prometheus.monitoring.svc:80", "http://prometheus.monitoring.svc"),
        ("http://prometheus.monitoring.svc:", "http://prometheus.monitoring.svc"),
        ("http://prometheus:9090", "http://prometheus.messaging.svc:9090"),
        ("http://prometheus.monitoring:9090", "http://prometheus.monitoring.svc:9090"),
    ],
)
def test_services_of_the_cluster_may_be_named_in_any_spelling(url: str, meant: str) -> None:
    assert asked(url) == meant


@pytest.mark.parametrize(
    "url",
    [
        "http://prometheus.example.com",
        "http://prometheus.monitoring.svc.example.com",
        "http://svc.example.com",
        "http://prometheus-svc.example.com",
        "http://example.com.svc.evil",
        "http://169.254.169.254",
        "http://127.0.0.1:8080",
        "http://[::1]:8080",
        "http://[::ffff:127.0.0.1]",
        "http://[fd00:ec2::254]",
    ],
)
def test_what_is_not_on_the_list_is_refused_with_the_list_and_the_flag_that_adds_it(url: str) -> None:
    with pytest.raises(
        RefusedUrlError, match=r"is not among .*\*\.svc, \*\.svc\.cluster\.local.*--allow-url "
    ) as caught:
        asked(url)
    text = str(caught.value)
    assert asked(url, text.rpartition("--allow-url ")[2]), "the pattern that the message tells allows it"


@pytest.mark.parametrize(
    "url",
    ["http://metadata/computeMetadata", "http://localhost:8080", "http://example.com", "http://kubernetes.default"],
)
def test_a_short_name_never_leaves_the_cluster(url: str) -> None:
    """A resolver would try `metadata` in domains of the node, too, and `example.com` as it is."""
    assert parse_url(asked(url)).host.endswith(".svc")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://prometheus.svc@evil.example.com", "holds a user name"),
        ("http://prometheus.svc:pass@evil.example.com", "holds a user name"),
        ("http://prometheus.svc\\@evil.example.com", "holds a user name"),
        ("http://evil.example.com\\.svc", "no path may"),
        ("http://evil.example.com#.svc", r"holds \? or #"),
        ("http://evil.example.com?.svc", r"holds \? or #"),
        ("http://metadata.svc/computeMetadata/v1/token?x=", r"holds \? or #"),
        ("http://x.svc/v1/\ttoken", "no path may"),
        ("http://x.svc/a b", "no path may"),
        ("http://2130706433", "odd spelling of an IPv4 address"),
        ("http://0x7f000001", "odd spelling of an IPv4 address"),
        ("http://0x7f.1", "odd spelling of an IPv4 address"),
        ("http://0177.0.0.1", "odd spelling of an IPv4 address"),
        ("http://127.1", "odd spelling of an IPv4 address"),
        ("http://1.2.3.4.5", "odd spelling of an IPv4 address"),
        ("http://[fe80::1%25eth0]", "names a network interface"),
        ("http://[::1", "can't be read"),
        ("http://[x]", "IPv6|can't be read"),
        ("http://%65vil.svc", "is not a host name"),
        ("http://\uff45vil.svc", "is not a host name"),
        ("http://evil\u3002svc", "is not a host name"),
        ("http://evil.example.com\x00.svc", "is not a host name"),
        ("http://a..svc", "is not a host name"),
        ("http://.svc", "is not a host name"),
        ("http://-a.svc", "is not a host name"),
        ("http:///api", "is not a host name"),
        ("http://x.svc:0", "port 0 must be 1 to 65535"),
        ("http://x.svc:99999", "can't be read"),
        ("http://x.svc:80:90", "can't be read"),
        ("ftp://x.svc", "scheme 'ftp' must be http or https"),
        ("file:///etc/passwd", "scheme 'file' must be http or https"),
        ("//x.svc", "has no scheme; write http://HOST:PORT"),
        ("x.svc:9090", "has no scheme; write http://x.svc:9090 or https://x.svc:9090"),
    ],
)
def test_a_url_that_two_programs_could_read_differently_is_refused_even_if_everything_is_allowed(
    url: str, words: str
) -> None:
    for patterns in ((), ("*",)):
        with pytest.raises(RefusedUrlError, match=words) as caught:
            asked(url, *patterns)
        assert "pass" not in str(caught.value).replace("passwd", "")


_PIECES = st.sampled_from(
    [
        *"./:@#?[]\\%*\t\n\x00 ",
        "http://",
        "https://",
        ".svc",
        "evil.com",
        "127.0.0.1",
        "::1",
        "0x7f",
        "a",
        "%40",
        "\uff05",
        "\u3002",
    ],
)


@given(url=st.one_of(st.lists(_PIECES, max_size=8).map("".join), st.text(max_size=40).map("http://{}.svc".format)))
@example(url="http://a.svc:80/..//evil.com")
def test_whatever_is_admitted_leads_to_a_service_by_the_reading_of_the_client_that_connects(url: str) -> None:
    with suppress(RefusedUrlError):
        meant = SERVICES_ALONE.admit(url, "messaging", secrets=True)
        read = parse_url(meant)
        assert str(read.host).endswith((".svc", ".svc.cluster.local"))
        assert (read.scheme, read.auth, read.query, read.fragment) in {(s, None, None, None) for s in ("http", "https")}


@pytest.mark.parametrize(
    ("pattern", "allowed", "refused"),
    [
        ("*.monitoring.svc", "http://a.monitoring.svc:1", "http://a.messaging.svc"),
        ("*.monitoring.svc", "http://b.a.monitoring.svc", "http://monitoring.svc"),
        ("https://mimir.example.com", "https://mimir.example.com:8443", "http://mimir.example.com"),
        ("mimir.example.com:8443", "https://MIMIR.example.com:8443", "https://mimir.example.com"),
        ("Mimir.Example.com.", "http://mimir.example.com", "http://a.mimir.example.com"),
        ("http://127.0.0.1:*", "http://127.0.0.1:1", "http://127.0.0.2:1"),
        ("127.0.0.1", "https://127.0.0.1:1", "http://[::ffff:127.0.0.1]"),
        ("10.0.*", "http://10.0.7.1", "http://10.1.0.1"),
        ("[::1]:9090", "http://[0:0:0:0:0:0:0:1]:9090", "http://[::1]"),
        ("prom-*.x.org:443", "https://prom-a.b.x.org", "https://prom-.org"),
        ("prometheus", "http://prometheus", "http://prometheus.messaging.svc"),
        ("*", "http://169.254.169.254", "http://169.254.169.254/?"),
    ],
)
def test_a_pattern_means_what_the_documentation_says(pattern: str, allowed: str, refused: str) -> None:
    assert asked(allowed, pattern)
    with pytest.raises(RefusedUrlError):
        asked(refused, pattern)


def test_patterns_replace_the_default() -> None:
    with pytest.raises(RefusedUrlError):
        asked("http://prometheus.monitoring.svc", "https://mimir.example.com")
    assert asked("http://prometheus.monitoring.svc", "https://mimir.example.com", "*.svc")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ftp://x",
        "http://",
        "x:0",
        "x:65536",
        "x:y",
        "http://a/b",
        "a@b",
        "a b",
        "1.2.3",
        "[::1",
        "[x]",
        "a..b",
        "*/",
    ],
)
def test_a_pattern_that_could_never_match_is_refused_in_words(text: str) -> None:
    with pytest.raises(BadPatternError, match=r"'.*'.*(must|host)"):
        AllowedUrls.of([text])


def test_a_person_may_look_anywhere_but_sends_no_secret_there() -> None:
    urls = AllowedUrls.of((), strangers=True)
    assert urls.admit("http://127.0.0.1:9090", "messaging", secrets=False) == "http://127.0.0.1:9090"
    with pytest.raises(RefusedUrlError, match="not among the URLs that may be sent a Secret"):
        urls.admit("http://127.0.0.1:9090", "messaging", secrets=True)
    with pytest.raises(RefusedUrlError, match="user name"):
        urls.admit("http://me@127.0.0.1:9090", "messaging", secrets=False)
