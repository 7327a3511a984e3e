use super::*;

fn ike(text: &str) -> IkeProposal {
    text.parse().unwrap()
}

fn esp(text: &str) -> EspProposal {
    text.parse().unwrap()
}

fn agree_ike(initiator: &[&str], responder: &[&str], ke: Option<u16>) -> String {
    let initiator: Vec<_> = initiator.iter().map(|t| ike(t)).collect();
    let responder: Vec<_> = responder.iter().map(|t| ike(t)).collect();
    let offer = ike_offer(&initiator, None);
    match select_ike(&offer, &responder, ke) {
        Ok(choice) => {
            let (suite, spi) = verify_ike(&choice.answer(None), &offer).unwrap();
            assert_eq!((suite, spi), (choice.suite, 0));
            suite.to_string()
        }
        Err(mismatch) => mismatch.to_string(),
    }
}

fn agree_esp(
    initiator: &str,
    responder: &str,
    esn: (EsnPolicy, EsnPolicy),
    exchange: KeyExchange,
) -> Option<String> {
    let offer = esp_offer(&[esp(initiator)], 0x1234_5678, esn.0, exchange);
    let choice = select_esp(&offer, &[esp(responder)], esn.1, exchange, None).ok()?;
    assert_eq!(choice.spi, 0x1234_5678);
    let (suite, spi) = verify_esp(&choice.answer(0x9abc_def0), &offer).unwrap();
    assert_eq!((suite, spi), (choice.suite, 0x9abc_def0));
    Some(suite.to_string())
}

const BOTH: (EsnPolicy, EsnPolicy) = (EsnPolicy::Prefer, EsnPolicy::Prefer);

#[test]
fn defaults_agree_with_each_other_on_the_first_choices() {
    let offer = ike_offer(&default_ike_proposals(), None);
    let choice = select_ike(&offer, &default_ike_proposals(), Some(31)).unwrap();
    assert_eq!(choice.suite.to_string(), "aes256gcm16-prfsha256-x25519-ke1_mlkem768");
    let offer = esp_offer(&default_esp_proposals(), 0x1000, EsnPolicy::Prefer, KeyExchange::Never);
    let choice =
        select_esp(&offer, &default_esp_proposals(), EsnPolicy::Prefer, KeyExchange::Never, None).unwrap();
    assert_eq!(choice.suite.to_string(), "aes128gcm16-esn");
}

#[test]
fn the_responders_order_decides_and_kinds_do_not_mix() {
    let both = ["aes128-sha256-modp2048", "aes256gcm16-prfsha256-x25519"];
    assert_eq!(agree_ike(&both, &["aes256gcm16-prfsha256-x25519", both[0]], None), both[1]);
    assert_eq!(agree_ike(&both, &both, None), "aes128-sha256-prfsha256-modp2048");
    // The cipher of one proposal and the group of another make no proposal.
    assert!(agree_ike(&both, &["aes128-sha256-x25519"], None).contains("key-exchange group"));
}

#[test]
fn the_group_in_hand_saves_a_round_trip_if_it_is_acceptable_at_all() {
    let (a, b) = (["aes256gcm16-prfsha256-ecp256-x25519"], ["aes256gcm16-prfsha256-x25519-ecp256"]);
    assert_eq!(agree_ike(&a, &b, Some(19)), "aes256gcm16-prfsha256-ecp256");
    assert_eq!(agree_ike(&a, &b, Some(14)), "aes256gcm16-prfsha256-x25519", "not offered: ask for ours");
    assert_eq!(agree_ike(&a, &b, None), "aes256gcm16-prfsha256-x25519");
}

#[test]
fn invalid_ke_is_followed_once_and_only_to_what_was_offered() {
    let offer = ike_offer(&[ike("aes256gcm16-prfsha256-x25519-ecp256")], None);
    assert_eq!(retry_group(19, &offer, &[Group::X25519]), Some(Group::Ecp256));
    assert_eq!(retry_group(19, &offer, &[Group::X25519, Group::Ecp256]), None, "in circles");
    assert_eq!(retry_group(14, &offer, &[Group::X25519]), None, "not offered");
    assert_eq!(retry_group(2, &offer, &[Group::X25519]), None, "forbidden");
}

#[test]
fn an_unknown_transform_type_spoils_its_proposal_alone() {
    let mut offer = ike_offer(&[ike("aes256gcm16-prfsha256-x25519"), ike("aes128-sha256-modp2048")], None);
    offer[0].transforms.push(Transform::new(TransformType::AdditionalKeyExchange1, 36));
    let ours = [ike("aes256gcm16-prfsha256-x25519"), ike("aes128-sha256-modp2048")];
    assert_eq!(select_ike(&offer, &ours, None).unwrap().suite.encr, Encr::Aes128Cbc);
}

#[test]
fn an_unknown_attribute_spoils_its_transform_alone() {
    use dormouse_wire::ike::{Attribute, AttributeValue};
    let mut offer = ike_offer(&[ike("aes256gcm16-aes128gcm16-prfsha256-x25519")], None);
    offer[0].transforms[0].other_attributes.push(Attribute { kind: 99, value: AttributeValue::Short(1) });
    let choice = select_ike(&offer, &[ike("aes256gcm16-aes128gcm16-prfsha256-x25519")], None).unwrap();
    assert_eq!(choice.suite.encr, Encr::Aes128Gcm16);
}

#[test]
fn key_lengths_are_part_of_the_algorithm() {
    let mut offer = ike_offer(&[ike("aes256gcm16-prfsha256-x25519")], None);
    offer[0].transforms[0].key_length = None;
    assert!(select_ike(&offer, &default_ike_proposals(), None).is_err());
    offer[0].transforms[0].key_length = Some(192);
    let mismatch = select_ike(&offer, &default_ike_proposals(), None).unwrap_err();
    assert!(mismatch.to_string().contains("aes192gcm16(unsupported)"), "{mismatch}");
}

#[test]
fn an_aead_takes_no_integrity_or_the_word_none_but_no_algorithm() {
    let ours = [ike("aes256gcm16-prfsha256-x25519")];
    let mut offer = ike_offer(&ours, None);
    offer[0].transforms.push(transform(TransformType::Integrity, NONE));
    let choice = select_ike(&offer, &ours, None).unwrap();
    assert!(choice.answer(None)[0].transforms.contains(&transform(TransformType::Integrity, NONE)));
    assert!(verify_ike(&choice.answer(None), &offer).is_ok());
    *offer[0].transforms.last_mut().unwrap() = integ_transform(Integ::HmacSha256_128);
    assert!(select_ike(&offer, &ours, None).is_err());
}

#[test]
fn groups_of_children_are_ignored_in_ike_auth_and_required_or_optional_later() {
    let never = KeyExchange::Never;
    let later = KeyExchange::Configured;
    let a = "aes128gcm16-x25519";
    assert_eq!(agree_esp(a, a, BOTH, never).as_deref(), Some("aes128gcm16-esn"));
    assert_eq!(agree_esp(a, a, BOTH, later).as_deref(), Some("aes128gcm16-x25519-esn"));
    assert_eq!(agree_esp("aes128gcm16", a, BOTH, later), None, "we require a group");
    assert_eq!(agree_esp(a, "aes128gcm16", BOTH, later), None, "they require a group");
    let optional = "aes128gcm16-x25519-none";
    assert_eq!(agree_esp("aes128gcm16", optional, BOTH, later).as_deref(), Some("aes128gcm16-esn"));
    assert_eq!(agree_esp(optional, "aes128gcm16", BOTH, later).as_deref(), Some("aes128gcm16-esn"));
    assert_eq!(agree_esp(optional, optional, BOTH, later).as_deref(), Some("aes128gcm16-x25519-esn"));
}

#[test]
fn extended_sequence_numbers_by_policy_of_both() {
    use EsnPolicy::{Off, Prefer, Require};
    let agree = |a, b| agree_esp("aes128gcm16", "aes128gcm16", (a, b), KeyExchange::Never);
    assert_eq!(agree(Prefer, Require).as_deref(), Some("aes128gcm16-esn"));
    assert_eq!(agree(Prefer, Off).as_deref(), Some("aes128gcm16"));
    assert_eq!(agree(Off, Prefer).as_deref(), Some("aes128gcm16"));
    assert_eq!(agree(Off, Require), None);
    assert_eq!(agree(Require, Off), None);
}

#[test]
fn a_choice_that_was_not_offered_is_refused() {
    let offer = ike_offer(&[ike("aes256gcm16-prfsha256-x25519"), ike("aes128-sha256-modp2048")], None);
    let right = select_ike(&offer, &[ike("aes256gcm16-prfsha256-x25519")], None).unwrap().answer(None);
    let check = |change: &dyn Fn(&mut Proposal)| {
        let mut answer = right.clone();
        change(&mut answer[0]);
        verify_ike(&answer, &offer).unwrap_err()
    };
    assert_eq!(check(&|p| p.number = 3), BadChoice::Number { number: 3 });
    assert!(
        matches!(check(&|p| p.number = 2), BadChoice::NotOffered { .. }),
        "transforms of another proposal"
    );
    assert!(matches!(check(&|p| p.transforms[0].key_length = Some(128)), BadChoice::NotOffered { .. }));
    assert!(matches!(check(&|p| p.transforms.truncate(2)), BadChoice::Transforms { got: 0, .. }));
    assert!(matches!(
        check(&|p| p.transforms.push(p.transforms[0].clone())),
        BadChoice::Transforms { got: 2, .. }
    ));
    assert_eq!(check(&|p| p.spi = vec![1, 2]), BadChoice::Spi(2));
    assert_eq!(verify_ike(&[], &offer), Err(BadChoice::Count(0)));
    assert_eq!(verify_ike(&[right[0].clone(), right[0].clone()], &offer), Err(BadChoice::Count(2)));
}

#[test]
fn a_child_cannot_be_answered_without_the_group_or_numbers_that_were_required() {
    let offer = esp_offer(&[esp("aes128gcm16-x25519")], 0x1000, EsnPolicy::Require, KeyExchange::Configured);
    let mut answer = offer.clone();
    assert!(verify_esp(&answer, &offer).is_ok());
    answer[0].transforms.retain(|t| t.kind != TransformType::KeyExchange);
    assert!(matches!(verify_esp(&answer, &offer), Err(BadChoice::Transforms { .. })));
    let mut answer = offer.clone();
    answer[0].transforms.retain(|t| t.kind != TransformType::ExtendedSequenceNumbers);
    assert!(matches!(verify_esp(&answer, &offer), Err(BadChoice::Transforms { .. })));
    let mut answer = offer.clone();
    answer[0].spi = vec![0, 0, 0, 200];
    assert_eq!(verify_esp(&answer, &offer), Err(BadChoice::Spi(4)), "reserved");
}

#[test]
fn rekeying_carries_the_new_spis() {
    let ours = [ike("aes256gcm16-prfsha256-x25519")];
    let offer = ike_offer(&ours, Some(77));
    let choice = select_ike(&offer, &ours, Some(31)).unwrap();
    assert_eq!(choice.spi, 77);
    assert_eq!(verify_ike(&choice.answer(Some(88)), &offer).unwrap().1, 88);
    assert_eq!(verify_ike(&choice.answer(None), &offer), Err(BadChoice::Spi(0)));
}

#[test]
fn a_mismatch_names_both_sides_and_the_line_to_change() {
    let text = agree_ike(&["aes128-sha1-prfsha1-modp2048"], &["aes256gcm16-prfsha256-x25519"], None);
    for part in [
        "offered [aes128-prfsha1-sha1-modp2048]",
        "acceptable [aes256gcm16-prfsha256-x25519]",
        "encryption (offered aes128; acceptable aes256gcm16)",
        "add \"aes128-sha1-prfsha1-modp2048\" to `ike.proposals`",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn what_is_forbidden_is_named_and_never_suggested() {
    let mut offer = ike_offer(&[ike("aes128-sha256-modp2048")], None);
    for t in &mut offer[0].transforms {
        match t.kind {
            TransformType::Encryption => *t = Transform::new(TransformType::Encryption, 3),
            TransformType::KeyExchange => t.id = 2,
            _ => {}
        }
    }
    let mismatch = select_ike(&offer, &default_ike_proposals(), Some(2)).unwrap_err();
    assert_eq!(mismatch.suggestion, None);
    let text = mismatch.to_string();
    assert!(text.contains("3des(unsupported)") && text.contains("modp1024(unsupported)"), "{text}");
}

#[test]
fn text_and_value_are_the_same() {
    for text in ["aes256gcm16-aes128gcm16-prfsha384-x25519-ecp256", "aes128-sha256-prfsha256-modp2048"] {
        assert_eq!(ike(text).to_string(), text);
    }
    for text in ["aes128gcm16", "aes256-sha512-ecp384", "chacha20poly1305-x25519-none"] {
        assert_eq!(esp(text).to_string(), text);
    }
    assert_eq!(
        ike("aes128-sha384-ecp384").to_string(),
        "aes128-sha384-prfsha384-ecp384",
        "the PRF follows the hash"
    );
    for (text, part) in [
        ("3des-sha1-modp1024", "unknown algorithm \"3des\""),
        ("aes256gcm16-sha256-x25519", "authenticates by itself"),
        ("aes256gcm16-aes128-sha256-x25519", "authenticates by itself"),
        ("aes128-x25519", "no integrity algorithm"),
        ("aes256gcm16", "no key-exchange group"),
        ("sha256-x25519", "no cipher"),
    ] {
        let error = text.parse::<IkeProposal>().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(
        "aes128gcm16-prfsha256".parse::<EspProposal>().unwrap_err().to_string().contains("pseudo-random")
    );
}

#[test]
fn a_mismatch_of_groups_alone_says_so() {
    let later = KeyExchange::Configured;
    let offer = esp_offer(&[esp("aes128gcm16-x25519")], 0x1000, EsnPolicy::Prefer, later);
    let mismatch = select_esp(&offer, &[esp("aes128gcm16")], EsnPolicy::Prefer, later, Some(31)).unwrap_err();
    let [difference] = mismatch.differences.as_slice() else { panic!("{mismatch}") };
    assert_eq!(
        (difference.kind, difference.acceptable.as_slice()),
        ("key-exchange group", &["none".to_owned()][..])
    );
    assert_eq!(mismatch.suggestion.as_deref(), Some("aes128gcm16-x25519"));
}

/// Additional key exchanges (RFC 9370): text, offer, choice and check.
#[test]
fn additional_key_exchanges_are_negotiated_one_by_one() {
    let hybrid = "aes256gcm16-prfsha256-x25519-ke1_mlkem768-ke1_mlkem1024-ke3_ecp384-ke3_none";
    assert_eq!(ike(hybrid).to_string(), hybrid);
    let offer = ike_offer(&[ike(hybrid)], None);
    assert!(offer[0].transforms.iter().any(|t| t.kind.code() == 8 && t.id == 0), "NONE is offered");
    let agree = |theirs: &str| agree_ike(&[hybrid], &[theirs], Some(31));
    let plain = "aes256gcm16-prfsha256-x25519";
    assert_eq!(agree(&format!("{plain}-ke1_mlkem1024")), format!("{plain}-ke1_mlkem1024"));
    assert_eq!(
        agree(&format!("{plain}-ke1_mlkem768-ke3_ecp384")),
        format!("{plain}-ke1_mlkem768-ke3_ecp384")
    );
    assert!(agree(plain).contains("additional key exchange"), "the first one is not optional");
    assert!(agree(&format!("{plain}-ke1_mlkem512")).contains("additional key exchange"));
    assert!(agree(&format!("{plain}-ke1_mlkem768-ke2_mlkem1024")).contains("additional key exchange"));
    // A suite that a ticket carries is judged by the same rules.
    let suite =
        |text: &str| select_ike(&ike_offer(&[ike(text)], None), &[ike(text)], Some(31)).unwrap().suite;
    assert!(permits(&[ike(hybrid)], &suite("aes256gcm16-prfsha256-x25519-ke1_mlkem768")));
    assert!(!permits(&[ike(hybrid)], &suite(plain)));
    assert!(!permits(&[ike(plain)], &suite("aes256gcm16-prfsha256-x25519-ke1_mlkem768")));
}

/// "the responder's choice MUST NOT contain duplicated algorithms": another choice is found where there is one.
#[test]
fn no_method_is_used_twice() {
    let (one, other) = ("-ke1_mlkem768-ke1_mlkem1024", "-ke2_mlkem768");
    let text = format!("aes256gcm16-prfsha256-x25519{one}{other}");
    assert_eq!(
        agree_ike(&[&text], &[&text], Some(31)),
        "aes256gcm16-prfsha256-x25519-ke1_mlkem1024-ke2_mlkem768"
    );
    let twice = "aes256gcm16-prfsha256-x25519-ke1_mlkem768-ke2_mlkem768";
    assert!(agree_ike(&[twice], &[twice], Some(31)).contains("additional key exchange"));
    let offer = ike_offer(&[ike(&text)], None);
    let mut answer = select_ike(&offer, &[ike(&text)], Some(31)).unwrap().answer(None);
    assert!(verify_ike(&answer, &offer).is_ok());
    let first = answer[0].transforms.iter_mut().find(|t| t.kind.code() == 6).unwrap();
    first.id = 36;
    assert!(matches!(verify_ike(&answer, &offer), Err(BadChoice::Transforms { .. })), "twice");
    answer[0].transforms.retain(|t| t.kind.code() != 6);
    assert!(matches!(verify_ike(&answer, &offer), Err(BadChoice::Transforms { got: 0, .. })), "left out");
}

#[test]
fn what_cannot_be_an_additional_key_exchange_is_refused_in_words() {
    let refused = |text: &str| text.parse::<IkeProposal>().unwrap_err().to_string();
    assert!(refused("aes256gcm16-prfsha256-mlkem768").contains("x25519-ke1_mlkem768"));
    for bad in ["ke0_mlkem768", "ke8_mlkem768", "ke1_aes", "ke1"] {
        assert!(refused(&format!("aes256gcm16-x25519-{bad}")).contains("unknown algorithm"), "{bad}");
    }
    let esp = "aes128gcm16-x25519-none-ke1_mlkem768".parse::<EspProposal>().unwrap_err().to_string();
    assert!(esp.contains("make two proposals"), "{esp}");
    assert!("aes128gcm16-ke1_mlkem768".parse::<EspProposal>().is_err());
    assert!("aes128gcm16-x25519-ke1_mlkem768".parse::<EspProposal>().is_ok());
}

/// Neither end comes to send in clear by what the other offers or answers.
#[test]
fn what_is_not_encrypted_is_agreed_on_by_both_or_not_at_all() {
    let (open, sealed) = (authenticated_esp_proposals(), default_esp_proposals());
    let offer = |proposals: &[EspProposal]| {
        esp_offer(proposals, 0x1234_5678, EsnPolicy::Prefer, KeyExchange::Configured)
    };
    let select = |offered: &[Proposal], ours: &[EspProposal]| {
        select_esp(offered, ours, EsnPolicy::Prefer, KeyExchange::Configured, Some(31))
    };
    let both = select(&offer(&open), &open).unwrap();
    assert_eq!(both.suite.to_string(), "aes128gmac-x25519-esn");
    let answer = both.answer(0x9abc_def0);
    assert_eq!(verify_esp(&answer, &offer(&open)), Ok((both.suite, 0x9abc_def0)));
    // One end alone.
    assert!(select(&offer(&open), &sealed).unwrap_err().to_string().contains("aes128gmac"));
    assert!(select(&offer(&sealed), &open).is_err());
    // An offer of both, in either order, and one that mixes them.
    let mut mixed = offer(&open);
    mixed[0].transforms.extend(offer(&sealed)[0].transforms.clone());
    for offered in
        [offer(&[&open[..], &sealed[..]].concat()), offer(&[&sealed[..], &open[..]].concat()), mixed]
    {
        assert!(select(&offered, &sealed).unwrap().suite.encr.encrypts());
    }
    // An answer that was not offered.
    let refused = verify_esp(&answer, &offer(&sealed));
    assert_eq!(refused, Err(BadChoice::NotOffered { kind: "encryption", id: 21 }));
    // Each key length, alone; one that does not exist, and none.
    for (bits, agreed) in [(Some(192), true), (Some(256), true), (Some(512), false), (None, false)] {
        let mut other = offer(&open);
        let of_another = |t: &Transform| t.id == 21 && t.key_length != Some(128);
        other[0].transforms.retain(|t| !of_another(t));
        other[0].transforms[0].key_length = bits;
        assert_eq!(select(&other, &open).is_ok(), agreed, "{bits:?}");
        assert!(select(&other, &sealed).is_err(), "{bits:?}");
    }
    let never: Vec<_> = ["aes128gmac", "null-sha256"].map(str::parse::<EspProposal>).into();
    assert!(never.iter().all(Result::is_err), "no text names it");
    let error = "aes256gmac-x25519".parse::<EspProposal>().unwrap_err().to_string();
    assert!(
        error.contains("\"aes256gmac\" does not encrypt; a CHILD SA that only authenticates has"),
        "{error}"
    );
    let error = "aes128gmac-prfsha256-x25519".parse::<IkeProposal>().unwrap_err().to_string();
    assert!(error.ends_with("the messages of IKE are always encrypted"), "{error}");
}

/// AES-CCM is agreed on, for both kinds of SA, where both ends name it, with the length of key and ICV that they name.
#[test]
fn ccm_is_agreed_on_where_it_is_named() {
    let ccm: Vec<Encr> = Encr::ALL.into_iter().filter(|encr| (14..=16).contains(&encr.id())).collect();
    assert_eq!(ccm.len(), 6);
    let esp = |proposals: &[EspProposal]| {
        esp_offer(proposals, 0x1234_5678, EsnPolicy::Prefer, KeyExchange::Configured)
    };
    let select = |offered: &[Proposal], ours: &[EspProposal]| {
        select_esp(offered, ours, EsnPolicy::Prefer, KeyExchange::Configured, Some(31))
    };
    for encr in &ccm {
        let named: EspProposal = format!("{encr}-x25519").parse().unwrap();
        let chosen = select(&esp(std::slice::from_ref(&named)), std::slice::from_ref(&named)).unwrap();
        assert_eq!(chosen.suite.encr, *encr);
        for other in ccm.iter().filter(|other| *other != encr) {
            let other: EspProposal = format!("{other}-x25519").parse().unwrap();
            let refused = select(&esp(&[other]), std::slice::from_ref(&named));
            assert!(refused.is_err(), "{encr} is no other");
        }
        assert!(select(&esp(&[named]), &default_esp_proposals()).is_err(), "{encr} by default");
        assert!(format!("{encr}-prfsha256-x25519").parse::<IkeProposal>().is_ok());
        assert!(
            format!("{encr}-sha256-prfsha256-x25519").parse::<IkeProposal>().is_err(),
            "{encr} needs no MAC"
        );
        assert!(default_ike_proposals().iter().all(|default| !default.encr.contains(encr)));
    }
}
