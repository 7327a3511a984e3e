//! How RADIUS servers look to people. Owns layout only; decides nothing.

use crate::style::{Style, duration, field};
use dormouse_control::{RadiusServer, RadiusStatus};

/// Each server, and what waits for them.
pub(crate) fn status(it: &RadiusStatus, style: Style) -> String {
    let mut out = String::new();
    for (title, servers) in [("RADIUS", &it.servers), ("accounting", &it.accounting)] {
        for one in servers {
            field(&mut out, style, title, &server(one, style));
        }
    }
    let interim = it.interim_seconds.map_or_else(String::new, |s| format!(", reports each {}", duration(s)));
    let lost = if it.reports_lost > 0 { format!(", {} lost", it.reports_lost) } else { String::new() };
    let waits = format!(
        "{} tries of {}{interim}, as {}; waiting: {} questions, {} reports{lost}",
        it.tries,
        duration(it.timeout_seconds),
        it.nas_identifier,
        it.questions,
        it.reports
    );
    field(&mut out, style, "RADIUS", &waits);
    out
}

fn server(it: &RadiusServer, style: Style) -> String {
    let discarded =
        if it.discarded > 0 { format!(", {} datagrams discarded", it.discarded) } else { String::new() };
    let counts = format!("{} answered, {} not{discarded}", it.answered, it.unanswered);
    let state = match (&it.silent, it.answered_seconds_ago) {
        (Some(why), _) => style.warning(why),
        (None, Some(ago)) => format!("answered {} ago", duration(ago)),
        (None, None) => style.dim("not asked yet"),
    };
    format!("{}: {state}; {counts}", it.address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_a_line() {
        let good = RadiusServer {
            address: "10.0.0.1:1812".into(),
            answered: 3,
            answered_seconds_ago: Some(4.0),
            ..Default::default()
        };
        let silent = RadiusServer {
            address: "10.0.0.2:1812".into(),
            unanswered: 1,
            discarded: 2,
            silent: Some("nothing listens there".into()),
            ..Default::default()
        };
        let fresh = RadiusServer { address: "10.0.0.1:1813".into(), ..Default::default() };
        let it = RadiusStatus {
            nas_identifier: "gw.test".into(),
            timeout_seconds: 2.0,
            tries: 3,
            interim_seconds: Some(600.0),
            servers: vec![good, silent],
            accounting: vec![fresh],
            reports: 1,
            reports_lost: 1,
            ..Default::default()
        };
        let text = status(&it, Style::plain());
        for line in [
            "10.0.0.1:1812: answered 4 s ago; 3 answered, 0 not\n",
            "10.0.0.2:1812: nothing listens there; 0 answered, 1 not, 2 datagrams discarded\n",
            "10.0.0.1:1813: not asked yet; 0 answered, 0 not\n",
            "3 tries of 2 s, reports each 10 min, as gw.test; waiting: 0 questions, 1 reports, 1 lost\n",
        ] {
            assert!(text.contains(line), "{text}\nhas no\n{line}");
        }
    }
}
