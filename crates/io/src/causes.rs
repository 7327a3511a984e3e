//! An error in one line. Owns no state.

/// An error and its causes, as `{:#}` of anyhow has them, without a cause whose words stand there already: many of our errors end with
/// the system's answer, and name it as their cause besides.
#[must_use]
pub fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let words = next.to_string();
        if !line.ends_with(&words) {
            line.push_str(": ");
            line.push_str(&words);
        }
        cause = next.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Error;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("the tunnel is not configured")]
    struct Outer(#[source] Error);

    #[test]
    fn no_cause_stands_there_twice() {
        let source = io::Error::from_raw_os_error(17);
        let inner = Error { what: "ip route add 10.0.0.0/8 dev tun0".into(), source };
        assert_eq!(causes(&inner), "ip route add 10.0.0.0/8 dev tun0: File exists (os error 17)");
        let expected =
            "the tunnel is not configured: ip route add 10.0.0.0/8 dev tun0: File exists (os error 17)";
        assert_eq!(causes(&Outer(inner)), expected);
    }
}
