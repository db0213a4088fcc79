"""What a base URL means: its usual misspellings, whether it is this machine, and which proxy stands before it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from nbagent.errors import ModelUnreachable, SettingsError

#: Proxy schemes that the HTTP library can speak.
PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")


def normalise(base_url: str) -> str:
    """Give the base URL with a scheme, without trailing slash and without `/chat/completions`.

    A missing scheme is http for this machine and bare IP addresses, else https. A path is kept as it is.

    Raises:
        SettingsError: it is no http or https address.
    """
    url = base_url.strip()
    try:
        if "://" not in url:
            url = ("http://" if _is_address(urlsplit(f"//{url}").hostname or "") else "https://") + url
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise SettingsError(f"base_url={base_url!r} is no address: write it like http://127.0.0.1:8000/v1")
    path = parts.path.rstrip("/").removesuffix("/chat/completions").rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def host_of(base_url: str) -> str:
    """Give scheme and host for people, without user name and password."""
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def is_loopback(base_url: str) -> bool:
    """Say whether the URL names this machine."""
    name = urlsplit(base_url).hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def goes_direct(base_url: str, environment: Mapping[str, str]) -> bool:
    """Say whether requests must not go through a proxy: this machine, or exempted by `NO_PROXY`."""
    exempt = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    names = [name.strip().lower().lstrip(".") for name in exempt.split(",") if name.strip()]
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    asked = (host, f"{host}:{parts.port}")
    return is_loopback(base_url) or any(
        name == "*" or name in asked or f".{host}".endswith(f".{name}") for name in names
    )


def proxy_variable(base_url: str, environment: Mapping[str, str]) -> str:
    """Name the environment variable whose proxy stands before this URL, or "".

    Raises:
        ModelUnreachable: a proxy variable holds a scheme that cannot be used.
    """
    if goes_direct(base_url, environment):
        return ""
    used = ""
    for variable in (f"{urlsplit(base_url).scheme}_proxy", "all_proxy", "http_proxy", "https_proxy"):
        for name in (variable, variable.upper()):
            value = environment.get(name, "").strip()
            scheme = value.partition("://")[0] if "://" in value else "http"
            if value and scheme not in PROXY_SCHEMES:
                raise ModelUnreachable(
                    f"{name} names a proxy of the scheme {scheme}://, which cannot be used: "
                    f"write http:// or socks5:// there, or unset {name}"
                )
            if value and variable in (f"{urlsplit(base_url).scheme}_proxy", "all_proxy"):
                used = used or name
    return used


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    return True
