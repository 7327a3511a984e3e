//! Two gateways that share a PostgreSQL database and do not have the same settings: `dormouse cluster status` and `doctor` name them, and which gateway
//! has them how, until they are the same.

use anyhow::{Context, Result, ensure};
use dormouse_interop::cluster::{Ground, NEEDS, until};
use dormouse_testbed::{Dormoused, Extra, Host, require};
use std::fs;

const TAKEOVER: &str = "cluster.takeover is not the same at all gateways: on at gw1, off at gw2";
const SESSIONS: &str = "connection.peer.sessions is not the same at all gateways: 5 at gw1, 3 at gw2";
const SECRET: &str = "connection.peer.remote.secret is not the same at all gateways: value A at gw";

/// What `dormouse cluster status` and `doctor` say at a gateway.
fn said(gateway: &Dormoused, host: &Host) -> Result<[String; 2]> {
    let config = host.dir().join("dormouse.toml").display().to_string();
    let status = gateway.cli(&["cluster", "status", "--config", &config])?;
    ensure!(status.code == 0, "{}", status.text);
    let doctor = gateway.cli(&["doctor", "--config", &config])?;
    Ok([status.text, doctor.text])
}

/// Changes the gateway's configuration.
fn change(host: &Host, from: &str, to: &str) -> Result<()> {
    let config = host.dir().join("dormouse.toml");
    let text = fs::read_to_string(&config)?;
    ensure!(text.contains(from), "{text}");
    Ok(fs::write(&config, text.replace(from, to))?)
}

#[test]
fn settings_that_gateways_do_not_have_alike_are_named() -> Result<()> {
    if !require("settings that gateways do not have alike", &NEEDS) {
        return Ok(());
    }
    let mut ground = Ground::new(2)?;
    ground.policy = "sessions = 5".to_owned();
    let first = ground.start_gateway(0, &ground.url(0), "takeover = true", Extra::default())?;
    ground.policy = "sessions = 3".to_owned();
    let mut second = ground.start_gateway(1, &ground.url(1), "", Extra::default())?;
    for (gateway, host) in [(&first, &ground.hosts[0]), (&second, &ground.hosts[1])] {
        for text in said(gateway, host)? {
            ensure!(text.contains(TAKEOVER) && text.contains(SESSIONS), "{text}");
            ensure!(text.matches("is not the same").count() == 2, "{text}");
        }
    }

    // One is in force after a reload, the other one not before a start.
    let host = &ground.hosts[1];
    change(host, "sessions = 3", "sessions = 5")?;
    change(host, "[cluster]\n", "[cluster]\ntakeover = true\n")?;
    second.ok(&["reload"])?;
    until("the reload is heard of", || Ok(!said(&second, host)?[0].contains(SESSIONS)))?;
    for text in said(&first, &ground.hosts[0])? {
        ensure!(text.contains(TAKEOVER) && text.matches("is not the same").count() == 1, "{text}");
    }
    second.process().kill();
    second.restart()?;
    let [status, doctor] = said(&second, host)?;
    ensure!(!status.contains("is not the same"), "{status}");
    let line = doctor.lines().find(|line| line.contains("same settings")).context(doctor.clone())?;
    ensure!(line.contains("2 gateways have the same"), "{line}");

    // A secret is compared, and is not in the database.
    let secret = dormouse_interop::ends::SECRET;
    change(host, secret, "another secret of these tests")?;
    second.ok(&["reload"])?;
    until("the other secret is heard of", || Ok(said(&second, host)?[0].contains(SECRET)))?;
    let [status, doctor] = said(&first, &ground.hosts[0])?;
    ensure!(doctor.contains(SECRET) && status.matches("is not the same").count() == 1, "{status}");
    let stored = ground.database.sql("postgres", "select settings from dormouse.gateway")?;
    ensure!(stored.contains("connection.peer.remote.secret=") && !stored.contains(secret), "{stored}");
    Ok(())
}
