"""Which IP addresses are on the open internet. Pure: a text in, a yes or a no out.

Whoever connects for an agent asks here about the very address it is going to use, after names were looked up.
"""

from ipaddress import IPv6Address, ip_address, ip_network

_GLOBAL_IPV6 = ip_network("2000::/3")  # all that is given out; site-local and translated forms are not in it
_NOT_PUBLIC = tuple(ip_network(each) for each in ("3fff::/20", "192.0.0.0/24", "192.88.99.0/24"))


def is_public(address: str) -> bool:
    """Whether an IP address is on the open internet: not loopback, private, link-local, mapped or reserved."""
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is not None:
            return is_public(str(inner))
        if ip not in _GLOBAL_IPV6:
            return False
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in _NOT_PUBLIC)
