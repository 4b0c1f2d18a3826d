"""Which IP addresses are on the open internet. Pure: a text in, a yes or a no out.

Whoever connects for an agent asks here about the very address it is going to use, after names were looked up.
"""

from ipaddress import IPv6Address, ip_address, ip_network

_TRANSLATED = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))


def is_public(address: str) -> bool:
    """Whether an IP address is on the open internet: not loopback, private, link-local, mapped or reserved."""
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is not None:
            return is_public(str(inner))
        if any(ip in network for network in _TRANSLATED):
            return False
    return ip.is_global and not ip.is_multicast
