//! Mobile IP by the shipped program, in five namespaces: ping and a TCP stream survive handoffs, a crash of an agent, and the way home; what the
//! device and the correspondent say to each other is in clear on no link between them; nothing is left behind.

use anyhow::{Context as _, Result, ensure};
use dormouse_interop::witness::Witness;
use dormouse_testbed::mobile::protected::{CONNECTION, Protection};
use dormouse_testbed::mobile::{
    CO_LOCATED, CORRESPONDENT, DEVICE, FOREIGN, HOME_AGENT, MobileIp, Place, Program,
};
use dormouse_testbed::{Dormoused, EchoServer, LongLived, Need, Testbed, Transfer, binary, require};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

const NEEDS: [Need; 2] = [Need::Root, Need::File("/dev/net/tun")];
const PATIENCE: Duration = Duration::from_secs(30);

fn ping(world: &MobileIp) -> Result<()> {
    world.device.sh(&format!("ping -c 2 -i 0.2 -W 2 {CORRESPONDENT}")).map(drop)
}

#[test]
fn ping_and_tcp_survive_three_handoffs_and_the_way_home() -> Result<()> {
    if !require("Mobile IP: a walk", &NEEDS) {
        return Ok(());
    }
    let world = MobileIp::start(Protection::None)?;
    world.go(Some(Place::Home))?;
    world.arrives(Place::Home)?;
    ping(&world)?;
    let server = SocketAddr::new(CORRESPONDENT.into(), 7);
    let _echo = EchoServer::start(&world.correspondent, server)?;
    let stream = LongLived::connect(&world.device, server)?;
    let bulk = SocketAddr::new(CORRESPONDENT.into(), 8);
    let transfer = Transfer::start(&world.correspondent, bulk, &world.device)?;
    for place in [Place::Foreign(0), Place::Foreign(1), Place::Foreign(0), Place::Home] {
        world.go(Some(place))?;
        world.arrives(place)?;
        ping(&world)?;
        stream.lives(PATIENCE)?;
        transfer.goes_on(PATIENCE)?;
    }
    assert!(stream.finish()? > 0);
    let (sent, received) = transfer.finish()?;
    assert_eq!(sent, received);
    let home = world.state(Program::Home)?;
    assert!(home["tunnelled"].as_u64() > Some(100) && home["returned"].as_u64() > Some(100), "{home}");
    assert_eq!(home["bindings"][0]["care_of"].as_array().map(Vec::len), Some(0), "{home}");
    for program in [Program::Home, Program::Foreign(0), Program::Foreign(1), Program::Device] {
        assert_eq!(world.state(program)?["forged"], 0, "{program:?}");
    }
    Ok(())
}

#[test]
fn a_foreign_agent_that_was_killed_is_found_again() -> Result<()> {
    if !require("Mobile IP: a crash", &NEEDS) {
        return Ok(());
    }
    let mut world = MobileIp::start(Protection::None)?;
    world.go(Some(Place::Foreign(0)))?;
    world.arrives(Place::Foreign(0))?;
    ping(&world)?;
    world.crash(Program::Foreign(0));
    world.launch(Program::Foreign(0))?;
    // Its advertisements begin anew: the device registers again.
    world.device.eventually(&format!("ping -c 1 -W 1 {CORRESPONDENT}"), PATIENCE)?;
    let home = world.state(Program::Home)?;
    assert_eq!(home["bindings"][0]["care_of"][0], FOREIGN[0].to_string());
    Ok(())
}

/// The programs have no rights: neither capabilities nor root.
#[test]
fn the_programs_give_their_rights_up() -> Result<()> {
    if !require("Mobile IP: rights", &NEEDS) {
        return Ok(());
    }
    let world = MobileIp::start(Protection::None)?;
    for program in [Program::Home, Program::Foreign(0), Program::Device] {
        let pids = Command::new("ip").args(["netns", "pids", world.host(program).netns()]).output()?;
        let pid = String::from_utf8(pids.stdout)?.split_whitespace().next().context("no process")?.to_owned();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().next().unwrap_or_default().to_owned()
        };
        assert_ne!(field("Uid:"), "0", "{program:?}");
        assert_eq!(field("CapEff:").trim_start_matches('0'), "", "{program:?}");
        assert_eq!(field("CapPrm:").trim_start_matches('0'), "", "{program:?}");
    }
    Ok(())
}

/// The device is at the first foreign agent, with a session to its gateway.
fn protected(protection: Protection) -> Result<MobileIp> {
    begins(MobileIp::start(protection)?)
}

/// The device of `world` comes to the first foreign network, and brings its session up.
fn begins(world: MobileIp) -> Result<MobileIp> {
    world.go(Some(Place::Foreign(0)))?;
    world.arrives(Place::Foreign(0))?;
    let daemons = world.daemons.as_ref().context("daemons")?;
    daemons.device.ok(&["up", CONNECTION, "--timeout", "30"])?;
    talks(&world)?;
    Ok(world)
}

fn talks(world: &MobileIp) -> Result<()> {
    world.device.eventually(&format!("ping -c 3 -i 0.2 -W 1 {CORRESPONDENT}"), PATIENCE).map(drop)
}

/// The device says `text` to the correspondent's echo server, by TCP and by UDP, and hears it from there.
fn says(world: &MobileIp, server: SocketAddr, text: &str) -> Result<()> {
    let said = text.as_bytes().to_vec();
    let heard = move || -> Result<()> {
        let mut heard = vec![0; said.len()];
        let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&said)?;
        stream.read_exact(&mut heard)?;
        ensure!(heard == said, "by TCP: {heard:?}");
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send_to(&said, server)?;
        heard.fill(0);
        let (length, _) = socket.recv_from(&mut heard)?;
        ensure!(length == said.len() && heard == said, "by UDP: {heard:?}");
        Ok(())
    };
    world.device.run(heard)?
}

/// Packets are protected from the device to the correspondent, not to the home agent: on no link between the two do witnesses see a word, though
/// the foreign agents' routers read headers. What is said without a session they see, as they should.
#[test]
fn user_data_is_in_clear_on_no_link_between_its_ends() -> Result<()> {
    if !require("Mobile IP: end-to-end protection", &NEEDS) {
        return Ok(());
    }
    for protection in [Protection::Whole, Protection::Ahead, Protection::Migrate] {
        let world = protected(protection)?;
        let server = SocketAddr::new(CORRESPONDENT.into(), 7);
        let _echo = EchoServer::start(&world.correspondent, server)?;
        let daemons = world.daemons.as_ref().context("daemons")?;
        // The home agent before the correspondent, before either foreign agent, and either foreign agent before the device.
        let [fa1, fa2] = &world.foreign;
        let in_clear = format!("ip route get {CORRESPONDENT} | grep -q 'src {DEVICE} '");
        let wire = Witness::new(&world.home, "lan")?;
        let tunnels = [Witness::new(&world.home, "fa1")?, Witness::new(&world.home, "fa2")?];
        let radios = [Witness::new(fa1, "radio")?, Witness::new(fa2, "radio")?];
        for at in [0, 1] {
            if at == 1 {
                world.go(Some(Place::Foreign(1)))?;
                world.arrives(Place::Foreign(1))?;
                talks(&world)?;
            }
            daemons.has_keys_if(protection, at, true)?;
            let read = daemons.router(at)?["read"].as_u64().context("how many")?;
            let secret = format!("<{protection:?} at fa{}: for the other end alone>", at + 1);
            says(&world, server, &secret).context("in the session")?;
            let now_read = daemons.router(at)?["read"].as_u64().context("how many")?;
            assert_eq!(now_read > read, protection.has_keys(), "{now_read}");
            // Later packets have been seen: these would have been before.
            daemons.device.ok(&["down", CONNECTION])?;
            // Before the routes are gone, a socket would still get the address of the session.
            world.device.eventually(&in_clear, PATIENCE)?;
            let open = format!("<{protection:?} at fa{}: for all to hear>", at + 1);
            says(&world, server, &open).context("without one")?;
            for (link, witness) in [("wire", &wire), ("tunnel", &tunnels[at]), ("radio", &radios[at])] {
                witness.sees(open.as_bytes()).with_context(|| link)?;
                assert!(!witness.saw(secret.as_bytes()), "{protection:?}: in clear on the {link}");
            }
            daemons.device.ok(&["up", CONNECTION, "--timeout", "30"])?;
        }
    }
    Ok(())
}

fn answered(daemon: &Dormoused) -> Result<u64> {
    let stats = daemon.ok(&["stats", "--json"])?.json;
    Ok(stats.pointer("/result/stats/counters/ike.answered.keys").and_then(Value::as_u64).unwrap_or(0))
}

#[test]
fn with_proactive_distribution_a_handoff_finds_the_keys_there_and_the_gateway_hears_of_it() -> Result<()> {
    if !require("Mobile IP: PKD", &NEEDS) {
        return Ok(());
    }
    let world = protected(Protection::Ahead)?;
    let daemons = world.daemons.as_ref().context("daemons")?;
    daemons.has_keys(0, true)?;
    daemons.has_keys(1, true)?;
    assert_eq!(daemons.router(1)?["read"], 0);
    let server = SocketAddr::new(CORRESPONDENT.into(), 7);
    let _echo = EchoServer::start(&world.correspondent, server)?;
    let stream = LongLived::connect(&world.device, server)?;
    let before = answered(&daemons.gateway)?;
    world.go(Some(Place::Foreign(1)))?;
    world.arrives(Place::Foreign(1))?;
    talks(&world)?;
    stream.lives(PATIENCE)?;
    let router = daemons.router(1)?;
    assert!(router["read"].as_u64() > Some(4), "{router}");
    // One thing only was said: that the device has come.
    assert_eq!((&router["asked"], answered(&daemons.gateway)? - before), (&1.into(), 1), "{router}");
    assert!(stream.finish()? > 0);
    // The session ends: no router keeps its keys.
    daemons.device.ok(&["down", CONNECTION])?;
    daemons.has_keys(0, false)?;
    daemons.has_keys(1, false)
}

#[test]
fn with_directed_migration_the_keys_go_from_agent_to_agent_with_the_device() -> Result<()> {
    if !require("Mobile IP: DKM", &NEEDS) {
        return Ok(());
    }
    let world = protected(Protection::Migrate)?;
    let daemons = world.daemons.as_ref().context("daemons")?;
    daemons.has_keys(0, true)?;
    assert_eq!(daemons.router(1)?["keys"], serde_json::json!([]), "the device is not there");
    // For the first handoff the routers have no session with each other: the gateway is asked, and they make one.
    for (to, from) in [(1, 0), (0, 1), (1, 0)] {
        let before = answered(&daemons.routers[from])?;
        world.go(Some(Place::Foreign(to)))?;
        world.arrives(Place::Foreign(to))?;
        talks(&world)?;
        daemons.has_keys(to, true)?;
        daemons.has_keys(from, false)?;
        talks(&world)?;
        let given = answered(&daemons.routers[from])? - before;
        assert!(given > 0, "{}", daemons.routers[from].log());
        daemons.routers[1].ok(&["wait", "next", "--timeout", "30"])?;
    }
    Ok(())
}

#[test]
fn an_agent_whose_router_is_gone_goes_on_and_finds_it_again() -> Result<()> {
    if !require("Mobile IP: a router's crash", &NEEDS) {
        return Ok(());
    }
    let mut world = protected(Protection::Ahead)?;
    let mut daemons = world.daemons.take().context("daemons")?;
    daemons.routers[1].process().kill();
    world.go(Some(Place::Foreign(1)))?;
    world.arrives(Place::Foreign(1))?;
    talks(&world)?;
    assert!(world.log(Program::Foreign(1)).contains("router not told"), "{}", world.log(Program::Foreign(1)));
    daemons.routers[1].restart()?;
    world.go(Some(Place::Foreign(0)))?;
    world.arrives(Place::Foreign(0))?;
    world.go(Some(Place::Foreign(1)))?;
    world.arrives(Place::Foreign(1))?;
    talks(&world)?;
    daemons.has_keys(1, true)?;
    assert!(
        world.log(Program::Foreign(1)).contains("router told: KeysHere"),
        "{}",
        world.log(Program::Foreign(1))
    );
    let nonsense = daemons.device.cli(&["keys", "here", "10.50.0.2"])?;
    assert!(nonsense.code != 0 && nonsense.text.contains("no access router"), "{}", nonsense.text);
    Ok(())
}

#[test]
fn with_addresses_of_its_own_a_device_moves_without_foreign_agents() -> Result<()> {
    if !require("Mobile IP: co-located addresses", &NEEDS) {
        return Ok(());
    }
    let mut world = MobileIp::co_located(Protection::None)?;
    world.go(Some(Place::Home))?;
    world.arrives(Place::Home)?;
    let server = SocketAddr::new(CORRESPONDENT.into(), 7);
    let _echo = EchoServer::start(&world.correspondent, server)?;
    let stream = LongLived::connect(&world.device, server)?;
    for place in [Place::Foreign(0), Place::Foreign(1), Place::Foreign(0), Place::Home] {
        world.go(Some(place))?;
        world.arrives(place)?;
        ping(&world)?;
        stream.lives(PATIENCE)?;
        let (device, home) = (world.state(Program::Device)?, world.state(Program::Home)?);
        // It has registered with its home agent itself, which sends its packets to where it is.
        assert_eq!(device["agent"], HOME_AGENT.to_string(), "{device}");
        let care_of: Vec<String> = match place {
            Place::Home => Vec::new(),
            Place::Foreign(n) => vec![CO_LOCATED[n].to_string()],
        };
        assert_eq!(home["bindings"][0]["care_of"], serde_json::json!(care_of), "{home}");
    }
    assert!(stream.finish()? > 0);
    let home = world.state(Program::Home)?;
    assert!(home["tunnelled"].as_u64() > Some(10) && home["returned"].as_u64() > Some(10), "{home}");
    for n in [0, 1] {
        assert!(!world.runs(Program::Foreign(n)), "fa{}", n + 1);
    }
    let refused = world.launch(Program::Foreign(0)).err().context("it began")?;
    assert!(refused.to_string().contains("no foreign agent is needed"), "{refused:#}");
    Ok(())
}

/// Without foreign agents the routers hear of no registration: keys come by what they see.
#[test]
fn with_addresses_of_its_own_a_devices_header_keys_follow_it() -> Result<()> {
    if !require("Mobile IP: keys for a co-located address", &NEEDS) {
        return Ok(());
    }
    for protection in [Protection::Ahead, Protection::Migrate] {
        let world = begins(MobileIp::co_located(protection)?)?;
        let daemons = world.daemons.as_ref().context("daemons")?;
        daemons.has_keys(0, true)?;
        daemons.has_keys(1, protection == Protection::Ahead)?;
        for to in [1, 0] {
            world.go(Some(Place::Foreign(to)))?;
            world.arrives(Place::Foreign(to))?;
            talks(&world)?;
            daemons.has_keys(to, true)?;
            let before = daemons.router(to)?["read"].as_u64().context("how many")?;
            talks(&world)?;
            let router = daemons.router(to)?;
            assert!(router["read"].as_u64() > Some(before + 2), "{protection:?}: {router}");
        }
    }
    Ok(())
}

#[test]
fn the_topology_takes_addresses_of_the_devices_own() -> Result<()> {
    if !require("dormouse lab topology --care-of co-located", &NEEDS) {
        return Ok(());
    }
    let bed = Testbed::new()?;
    let script = bed.dir().join("walk");
    std::fs::write(&script, "move fa1\nping 1\nmove fa2\nping 1\nshow\n")?;
    let run = |more: &[&str]| {
        Command::new(binary("dormouse"))
            .args(["lab", "topology", "mobile-ip", "--care-of", "co-located", "--script"])
            .arg(&script)
            .args(more)
            .spawn_and_wait()
    };
    let (code, text, pid) = run(&[])?;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("\"care_of\":\"10.52.0.2\"") && text.contains("fa1     \"not running\""), "{text}");
    none_left(pid)?;
    let (code, text, _) = run(&["--json"])?;
    // What the commands say stands behind it, on the other output.
    let state = serde_json::Deserializer::from_str(&text).into_iter::<Value>().next();
    let state = state.with_context(|| text.clone())??;
    let origin = &state["provenance"];
    assert!(code == 0 && state["programs"]["device"].is_object(), "{code}: {text}");
    assert_eq!(
        (&origin["settings"]["care_of"], &origin["seed"]),
        (&"co-located".into(), &1.into()),
        "{origin}"
    );
    assert!(origin["versions"]["commit"].is_string() && origin["machine"]["kernel"].is_string(), "{origin}");
    assert!(
        origin["command"].as_array().is_some_and(|c| c.iter().any(|word| word == "topology")),
        "{origin}"
    );
    let (code, text, _) = run(&["--bit-errors", "1/64k"])?;
    assert!(code != 0 && text.contains("not with --care-of co-located"), "{code}: {text}");
    Ok(())
}

#[test]
fn the_topology_obeys_a_script_and_leaves_nothing_behind() -> Result<()> {
    if !require("dormouse lab topology", &NEEDS) {
        return Ok(());
    }
    let bed = Testbed::new()?;
    let (good, bad) = (bed.dir().join("walk"), bed.dir().join("astray"));
    std::fs::write(
        &good,
        "ping 1\nstream\nmove fa1\nstream # it goes on\nping\nmove fa2\nmove fa2\nping\nstream end\nshow\nend\n",
    )?;
    std::fs::write(&bad, "move fa1\nmove fa7\n")?;
    let run = |file: &std::path::Path| {
        Command::new(binary("dormouse"))
            .args(["lab", "topology", "mobile-ip", "--script"])
            .arg(file)
            .spawn_and_wait()
    };
    let (code, text, pid) = run(&good)?;
    assert!(
        code == 0 && text.contains("registered at fa2 after") && text.contains("none lost"),
        "{code}: {text}"
    );
    assert_eq!(text.matches("registered at fa2 already").count(), 1, "{text}");
    // Without being told to, both routers have read the headers of the device's packets.
    let read = text.lines().filter(|line| line.starts_with("router") && !line.contains("\"read\":0"));
    assert_eq!(read.count(), 2, "{text}");
    none_left(pid)?;
    let (code, text, pid) = run(&bad)?;
    assert!(code != 0 && text.contains("fa7"), "{code}: {text}");
    none_left(pid)
}

/// Over bad radios, the access routers repeat what is lost, wherever the device is.
#[test]
fn routers_repeat_what_bad_radios_lose() -> Result<()> {
    if !require("dormouse lab topology over bad radios", &NEEDS) {
        return Ok(());
    }
    let bed = Testbed::new()?;
    let script = bed.dir().join("fetch");
    std::fs::write(&script, "move fa1\nfetch 200000\nmove fa2\nfetch 200000\nshow\n")?;
    let (code, text, pid) = Command::new(binary("dormouse"))
        .args([
            "lab",
            "topology",
            "mobile-ip",
            "--rate",
            "2M",
            "--delay",
            "2ms",
            "--bit-errors",
            "1/64k",
            "--script",
        ])
        .arg(&script)
        .spawn_and_wait()?;
    assert_eq!(code, 0, "{text}");
    assert_eq!(text.matches("200000 bytes in ").count(), 2, "{text}");
    for router in ["router1", "router2"] {
        let state = text.lines().find_map(|line| line.strip_prefix(router)).context("its state")?;
        let state: Value = serde_json::from_str(state)?;
        assert!(state["repeated"].as_u64() > Some(0), "{router}: {state}");
    }
    // The last one has just been there.
    let flows = text.lines().filter_map(|line| line.strip_prefix("  flow  "));
    let flows: Vec<Value> = flows.map(serde_json::from_str).collect::<Result<_, _>>()?;
    let repaired = |flow: &&Value| flow["repeated"].as_u64() > Some(0) && flow["esp"].is_array();
    let flow = flows.iter().find(repaired).with_context(|| text.clone())?;
    assert!(flow["fixed"].as_str().is_some_and(|fixed| fixed.starts_with("10.98.0.2:")), "{flow}");
    let device = text.lines().find_map(|line| line.strip_prefix("device")).context("its state")?;
    let device: Value = serde_json::from_str(device)?;
    assert!(device["radio"]["lost"].as_u64() > Some(0), "{device}");
    none_left(pid)
}

#[test]
fn a_script_that_is_interrupted_has_not_succeeded() -> Result<()> {
    if !require("dormouse lab topology", &NEEDS) {
        return Ok(());
    }
    let bed = Testbed::new()?;
    let long = bed.dir().join("long");
    std::fs::write(&long, "ping 1\n".repeat(100))?;
    let mut child = Command::new(binary("dormouse"))
        .args(["lab", "topology", "mobile-ip", "--script"])
        .arg(&long)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut out = BufReader::new(child.stdout.take().context("its output")?);
    let mut text = String::new();
    out.read_line(&mut text)?;
    kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGINT)?;
    out.read_to_string(&mut text)?;
    let pid = child.id();
    let ended = child.wait_with_output()?;
    let error = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && error.contains("interrupted"), "{}: {error}", ended.status);
    none_left(pid)
}

fn none_left(pid: u32) -> Result<()> {
    let names = Command::new("ip").args(["netns", "list"]).output()?;
    let names = String::from_utf8(names.stdout)?;
    assert!(!names.contains(&format!("dm{pid}-")), "{names}");
    Ok(())
}

trait SpawnAndWait {
    fn spawn_and_wait(&mut self) -> Result<(i32, String, u32)>;
}

impl SpawnAndWait for Command {
    /// Exit code, what it said, and the process id that its namespaces are named by.
    fn spawn_and_wait(&mut self) -> Result<(i32, String, u32)> {
        let child = self.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let pid = child.id();
        let out = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        Ok((out.status.code().unwrap_or(-1), text, pid))
    }
}
