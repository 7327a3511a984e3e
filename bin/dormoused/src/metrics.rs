//! What the daemon's parts have counted, for Prometheus. Owns which part a number comes from; each is kept as things happen, so that to gather them takes as long
//! for a hundred thousand sessions as for one: it looks at every connection of the configuration, and at no session of a peer.

use crate::daemon::Daemon;
use crate::joining::Cluster;
use crate::sheet::Sheet;
use crate::stats::lower;
use crate::status;
use dormouse_control as control;
use dormouse_control::{ConnectionState, SleepState};
use dormouse_io::clock::unix_now;
use dormouse_node::config::file::Role;
use dormouse_sansio::Instant;

impl Daemon {
    /// The thread that shows the numbers has asked for them.
    pub(crate) fn hand_numbers_over(&mut self, now: Instant) {
        let sheet = self.numbers(now);
        if let Some(scrapes) = &self.helpers.scrapes {
            scrapes.hand_over(sheet);
        }
    }

    fn numbers(&mut self, now: Instant) -> Sheet {
        let mut sheet = Sheet::default();
        sheet.put("ipsec_up", &[], true);
        sheet.put("ipsec_uptime_seconds", &[], (now - self.started).as_secs_f64());
        sheet.put("dormouse_build_info", &[env!("CARGO_PKG_VERSION")], true);
        sheet.put("dormouse_held_packets", &[], self.host.held());
        self.of_connections(now, &mut sheet);
        self.of_key_management(&mut sheet);
        self.of_drops(&mut sheet);
        if self.connections.iter().any(|c| c.role == Role::Gateway) {
            self.of_gateway(&mut sheet);
        }
        if let Some(cluster) = &self.helpers.cluster {
            of_cluster(cluster, &mut sheet);
        }
        self.of_stand_in(&mut sheet);
        if let Some(sleep) = self.sleep_status(now) {
            of_sleep(&sleep, &mut sheet);
        }
        for (name, n) in self.hip_counters() {
            sheet.put("dormouse_hip", &[name.strip_prefix("hip.").unwrap_or(name)], n);
        }
        sheet
    }

    fn of_connections(&self, now: Instant, sheet: &mut Sheet) {
        let node = self.host.node();
        let role = |name: &str| match self.connections.iter().find(|c| c.name == name).map(|c| c.role) {
            Some(Role::Client) => "client",
            Some(Role::Gateway) => "gateway",
            Some(Role::Hip) | None => "hip",
        };
        for it in node.tallies() {
            let name = it.connection.as_str();
            let (role, of) = (role(name), [name]);
            sheet.put("dormouse_sessions", &[name, role], it.held.sessions);
            sheet.put("dormouse_sessions_asleep", &[name, role], it.held.asleep);
            sheet.put("ipsec_child_sa_bytes_in", &of, it.received.bytes);
            sheet.put("ipsec_child_sa_bytes_out", &of, it.sent.bytes);
            sheet.put("ipsec_child_sa_packets_in", &of, it.received.packets);
            sheet.put("ipsec_child_sa_packets_out", &of, it.sent.packets);
            let happened = self.verbs.tally.get(name).cloned().unwrap_or_default();
            for (rung, (times, ms)) in happened.up {
                sheet.put("dormouse_wakes", &[name, rung], times);
                sheet.put("dormouse_wake_seconds", &[name, rung], ms as f64 / 1_000.0);
            }
            for (rung, times) in happened.failed {
                sheet.put("dormouse_rung_failures", &[name, rung], times);
            }
            if role != "client" {
                sheet.put("dormouse_sessions_begun", &[name, "full"], happened.full);
                sheet.put("dormouse_sessions_begun", &[name, "ticket"], happened.resumed);
                sheet.put("dormouse_sessions_ended", &of, happened.ended);
            }
        }
        for info in node.client_infos(now) {
            let state = status::state(&info);
            for each in ConnectionState::ALL {
                sheet.put("dormouse_connection_state", &[&info.name, each.name()], each == state);
            }
            sheet.put("dormouse_ticket_held", &[&info.name], info.ticket_expires.is_some());
        }
    }

    fn of_key_management(&self, sheet: &mut Sheet) {
        let (ike, node) = (self.host.node().ike_stats(), self.host.node());
        sheet.put("ipsec_ike_sas", &[], node.ike().len());
        sheet.put("ipsec_half_open_ike_sas", &[], node.ike().half_open());
        sheet.put("dormouse_ike_datagrams", &["in"], ike.datagrams_in);
        sheet.put("dormouse_ike_datagrams", &["out"], ike.datagrams_out);
        sheet.put("dormouse_ike_bytes", &["in"], ike.bytes_in);
        sheet.put("dormouse_ike_bytes", &["out"], ike.bytes_out);
        sheet.put("dormouse_ike_retransmissions", &[], ike.retransmissions);
        for (side, exchanges) in [("begun", &ike.begun), ("answered", &ike.answered)] {
            for (kind, n) in exchanges {
                sheet.put("dormouse_ike_exchanges", &[&lower(kind), side], *n);
            }
        }
    }

    fn of_drops(&self, sheet: &mut Sheet) {
        let (node, plane) = (self.host.node().counters(), self.host.counters());
        for (reason, n) in &self.host.node().ike_stats().discards {
            sheet.put("dormouse_ike_discards", &[reason], *n);
        }
        for (reason, n) in &node.esp_discards {
            sheet.put("dormouse_esp_discards", &[reason], *n);
        }
        for (reason, n) in [
            ("malformed", node.malformed),
            ("no_policy", plane.no_policy),
            ("held_too_many", plane.held_dropped),
            ("unsent", plane.unsent),
            ("unsealed", plane.unsealed),
            ("isolated", plane.isolated),
            ("arrivals_too_many", plane.arrivals_dropped),
        ] {
            sheet.put("dormouse_packets_dropped", &[reason], n);
        }
    }

    fn of_gateway(&self, sheet: &mut Sheet) {
        let (node, ike) = (self.host.node(), self.host.node().ike_stats());
        let refused = &node.counters().refused;
        for (reason, n) in refused {
            sheet.put("dormouse_refused", &[reason], *n);
        }
        sheet.put("dormouse_tickets", &["issued"], ike.tickets_issued);
        sheet.put("dormouse_tickets", &["accepted"], self.verbs.tally.resumed());
        sheet.put("dormouse_tickets", &["refused"], refused.get("ticket").copied().unwrap_or(0));
        sheet.put("dormouse_newcomers_refused", &[], ike.newcomers_refused());
        sheet.put("dormouse_half_open_displaced", &[], ike.half_open_displaced);
        sheet.put("dormouse_cookies_sent", &[], ike.cookies_sent());
        sheet.put("dormouse_puzzles_given", &[], ike.puzzles_given);
        sheet.put("dormouse_puzzles_solved", &[], ike.puzzles_solved);
        sheet.put("dormouse_absent_devices", &[], node.absent_count());
    }

    fn of_stand_in(&self, sheet: &mut Sheet) {
        let node = self.host.node();
        let Some((done, (packets, bytes))) = node.stand_in_totals() else { return };
        sheet.put("dormouse_stand_in_devices", &[], node.stood_in_for());
        sheet.put("dormouse_stand_in_packets", &[], done.handled);
        sheet.put("dormouse_stand_in_kept", &[], done.buffered);
        sheet.put("dormouse_stand_in_delivered", &[], done.delivered);
        sheet.put("dormouse_stand_in_waiting_packets", &[], packets);
        sheet.put("dormouse_stand_in_waiting_bytes", &[], bytes);
        for (kind, n) in done.answered {
            sheet.put("dormouse_stand_in_answered", &[kind.name()], n);
        }
        for (reason, n) in done.dropped {
            sheet.put("dormouse_stand_in_dropped", &[reason.name()], n);
        }
    }
}

fn of_cluster(cluster: &Cluster, sheet: &mut Sheet) {
    sheet.put("dormouse_cluster_reachable", &[], !cluster.company.share.alone);
    sheet.put("dormouse_cluster_denials", &[], cluster.company.denials.len());
    sheet.put("dormouse_cluster_ticket_keys", &[], cluster.keys.len());
    let now = unix_now();
    if let Some(newest) = cluster.keys.iter().filter(|from| **from <= now).max() {
        let age = now.saturating_since(*newest).as_secs_f64();
        sheet.put("dormouse_cluster_ticket_key_age_seconds", &[], age);
    }
    let balance = cluster.balance.lock();
    sheet.put("dormouse_cluster_sent_away", &[], balance.sent());
    if let Some(time) = balance.session_time() {
        sheet.put("dormouse_cluster_session_seconds", &[], time.as_secs_f64());
        sheet.put("dormouse_cluster_load_seconds", &[], balance.own_load().as_secs_f64());
    }
    drop(balance);
    if let Some(heard) = cluster.counts.heard() {
        sheet.put("dormouse_cluster_round_trip_seconds", &[], heard.round_trip.as_secs_f64());
        sheet.put("dormouse_cluster_gateways", &["heard"], heard.heard);
        sheet.put("dormouse_cluster_gateways", &["silent"], heard.silent);
    }
}

fn of_sleep(sleep: &control::SleepStatus, sheet: &mut Sheet) {
    for state in SleepState::ALL {
        sheet.put("dormouse_radio_state", &[state.name()], state == sleep.state);
    }
    sheet.put("dormouse_sleeps", &[], sleep.sleeps);
    sheet.put("dormouse_sleeps_called_off", &[], sleep.called_off);
    sheet.put("dormouse_radio_failures", &[], sleep.radio_failures);
    sheet.put("dormouse_lost_packets", &[], sleep.lost_packets);
    for (cause, n) in &sleep.wakes_by_cause {
        sheet.put("dormouse_wake_causes", &[cause], *n);
    }
    let energy = &sleep.energy;
    let source = if energy.uncertainty_joules.is_some() { "meter" } else { "profile" };
    for (of, joules) in [
        ("used", energy.used_joules),
        ("always_on", energy.always_on_joules),
        ("power_save", energy.power_save_joules),
    ] {
        sheet.put("dormouse_energy_joules", &[of, source], joules);
    }
    sheet.put("dormouse_energy_saved_joules", &[source], energy.saved_joules);
    for (state, seconds) in [
        (SleepState::Awake, energy.awake_seconds),
        (SleepState::Preparing, energy.preparing_seconds),
        (SleepState::Asleep, energy.asleep_seconds),
        (SleepState::Waking, energy.waking_seconds),
    ] {
        sheet.put("dormouse_radio_seconds", &[state.name()], seconds);
    }
}
