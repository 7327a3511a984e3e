//! What the configuration says of other gateways and of sessions without a CHILD SA at their beginning reaches IKE, and what is wrong is told.

use dormouse_ike::config::Childless;
use dormouse_node::config::{Resolved, parse, resolve};

fn with(role: &str, ike: &str) -> Result<Resolved, String> {
    let gateway = if role == "client" { "gateway = \"vpn.test\"\n" } else { "" };
    let text = format!(
        "[connection.office]\nrole = \"{role}\"\n{gateway}[connection.office.local]\nid = \"a.test\"\nsecret = \"a secret of the test\"\n\
         [connection.office.remote]\nid = \"vpn.test\"\nsecret = \"a secret of the test\"\n[connection.office.ike]\n{ike}\n"
    );
    let file = parse(&text).map_err(|e| e.to_string())?;
    let resolved = resolve(&file, &mut |_, _| Err("no files here".into())).map_err(|e| e.to_string())?;
    resolved.into_iter().next().ok_or_else(|| "none".to_owned())
}

#[test]
fn what_is_configured_reaches_ike() {
    let unsaid = with("client", "").expect("a configuration").ike;
    assert_eq!((unsaid.opening.childless, unsaid.opening.redirects.len()), (Childless::Allow, 0));
    assert_eq!(unsaid.answering.redirect_to, None);
    let client = with("client", "childless = \"force\"\nredirects = [\"*.Example.org\", \"192.0.2.0/24\"]");
    let opening = client.expect("a configuration").ike.opening.clone();
    assert_eq!(opening.childless, Childless::Force);
    let shown: Vec<String> = opening.redirects.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["*.example.org", "192.0.2.0/24"]);
    let gateway =
        with("gateway", "childless = \"never\"\nredirect_to = \"gw2.example.org\"").expect("a configuration");
    assert_eq!(gateway.ike.opening.childless, Childless::Never);
    assert_eq!(gateway.ike.answering.redirect_to, Some("gw2.example.org".parse().expect("a name")));
}

#[test]
fn what_is_no_gateway_is_told() {
    let error = with("client", "redirects = [\"gw2.example.org\", \"not a name\"]").expect_err("refused");
    assert!(error.starts_with("connection.office.ike.redirects[1]: \"not a name\" is neither"), "{error}");
    let error = with("gateway", "redirect_to = \"10.0.0.0/8\"").expect_err("refused");
    assert!(error.starts_with("connection.office.ike.redirect_to: \"10.0.0.0/8\" is neither"), "{error}");
}
