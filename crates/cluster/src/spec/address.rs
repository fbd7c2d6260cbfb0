//! Validation of task addresses.

/// Describes what is wrong with an address and how to fix it; `None` for a valid one.
pub(super) fn fault(address: &str) -> Option<String> {
    if address.is_empty() {
        return Some("it is empty".to_owned());
    }
    if let Some((scheme, rest)) = address.split_once("://") {
        return Some(format!("leave out the scheme {scheme}://, write {rest}"));
    }
    let stray = |c: &char| c.is_whitespace() || "/,\"'{}()".contains(*c);
    if let Some(stray) = address.chars().find(stray) {
        return Some(format!("hosts and ports cannot contain the character '{stray}'"));
    }
    let Some((host, port)) = address.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) else {
        return Some(format!("the port is missing, write e.g. {address}:2222"));
    };
    if host.is_empty() {
        return Some(format!("the host is missing, write e.g. localhost:{port}"));
    }
    let bracketed = host.starts_with('[') && host.ends_with(']');
    if host.contains(':') && !bracketed {
        return Some(format!("an IPv6 address needs brackets, write [{host}]:{port}"));
    }
    match port.parse::<u64>() {
        Ok(1..=65535) => None,
        Ok(0) => Some("port 0 cannot be connected to, write the port that the task listens on".to_owned()),
        Ok(_) => Some(format!("{port} is too large, the largest port is 65535")),
        Err(_) => Some(format!("'{port}' is not a port, write a number from 1 to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::fault;

    #[test]
    fn every_fault_comes_with_its_fix() {
        for good in ["a:1", "10.0.0.1:65535", "[::1]:2222", "a-b.c.svc:80"] {
            assert_eq!(fault(good), None, "{good}");
        }
        let cases = [
            ("", "it is empty"),
            ("a", "write e.g. a:2222"),
            ("[::1]", "write e.g. [::1]:2222"),
            (":1", "write e.g. localhost:1"),
            ("::1:2222", "write [::1]:2222"),
            ("a:0", "port 0"),
            ("a:99999", "the largest port is 65535"),
            ("a:http", "'http' is not a port"),
            ("a:-1", "'-1' is not a port"),
            ("http://a:1", "write a:1"),
            ("a b:1", "the character ' '"),
            ("[\"a:1\"]", "the character '\"'"),
        ];
        for (address, fix) in cases {
            assert!(fault(address).is_some_and(|text| text.contains(fix)), "{address}: {:?}", fault(address));
        }
    }
}
