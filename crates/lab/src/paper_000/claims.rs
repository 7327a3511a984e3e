//! The paper's claims about schedules, each with its range, our figure and interval. Owns the ranges; they were chosen before the figures.

use dormouse_energy::WakeOn;
use dormouse_energy::account::ClientReport;
use dormouse_energy::model::Resumption;
use dormouse_trace::report::figures::{EXTREMES, LOADS, THRESHOLDS};

use super::law;
use super::shares::{Clients, Shares, under};
use super::tables::{FirstAges, Splits, best_fixed, number, shown, under_thresholds};
use super::traffic::Traffic;
use super::{LOAD, PROTOCOL};
use crate::judge::stats::Measured;
use crate::judge::{Claim, Expect};

/// Points by which a share may be off and still be the same.
pub(super) const POINTS: f64 = 5.0;

/// `first_ages` and `splits`: with every packet waking, and with only what the client sends.
pub(super) fn all(
    traffic: &Traffic,
    shares: Shares,
    first_ages: &[FirstAges; 2],
    splits: &[Splits; 2],
) -> Vec<Claim> {
    let Traffic { all, outgoing, .. } = traffic;
    let at = traffic.questions.costs().position(|(r, load, _)| r == PROTOCOL && load == LOAD).unwrap_or(0);
    let optimum = under(all, |c| c.extra.results.optimum.get(at).map(Vec::as_slice).unwrap_or_default(), 0);
    let of = |results, name| under(results, |c| &c.sessions, number(name));
    let (paper, ours) = (of(outgoing, "paper"), of(outgoing, "dormouse"));
    let (paper_all, ours_all) = (of(all, "paper"), of(all, "dormouse"));
    let gains = shares.part(&optimum, |v| v > 0.0);
    let fifth = |clients: &Clients| shares.part(clients, |v| v >= 20.0);
    let mut claims = vec![
        Claim::new(
            "section 3.4",
            "Sessions that gain at all, clairvoyant, 20 clients at the gateway",
            "78 %",
            format!("{} %", shown(gains)),
        )
        .judged(Expect::about(78.0, POINTS), gains),
        Claim::new(
            "sections 3.5 and 6",
            "Sessions that save 20 % or more of their idle energy with the paper's scheduler",
            "more than 50 %",
            format!("{} %; with dormouse's {} %", shown(fifth(&paper)), shown(fifth(&ours))),
        )
        .judged(Expect::above(50.0), fifth(&paper)),
        Claim::new(
            "section 3.5",
            "The scheduler stays within 3.5 points of the optimum",
            "3.5 points",
            format!(
                "{} points, with every packet waking {}; dormouse's {} and {}",
                shown(shares.gap(&paper)),
                shown(shares.gap(&paper_all)),
                shown(shares.gap(&ours)),
                shown(shares.gap(&ours_all))
            ),
        )
        .judged(Expect::below(3.5), shares.gap(&paper)),
        Claim::new(
            "section 3.5",
            "It saves over 90 % of the maximum",
            "over 90 %",
            format!(
                "{} %, with every packet waking {} %; dormouse's {} and {} %",
                shown(shares.of_maximum(&paper)),
                shown(shares.of_maximum(&paper_all)),
                shown(shares.of_maximum(&ours)),
                shown(shares.of_maximum(&ours_all))
            ),
        )
        .judged(Expect::above(90.0), shares.of_maximum(&paper)),
    ];
    claims.extend(other_readings(first_ages, splits));
    claims.push(super::buckets::claim(traffic, shares));
    claims.extend(super::baselines::claims(traffic, shares));
    claims.extend(best_thresholds(traffic, shares));
    claims.extend(directions(traffic, shares));
    claims.extend(penalties(traffic, shares));
    claims.push(misjudged(traffic, shares));
    claims.extend(losses(traffic, shares));
    let missed = |name: &str, results| {
        let few = |s: &ClientReport| s.policy(name).is_some_and(|t| t.missed_opportunities < 10);
        shares.counted(results, |c| Some(&c.sessions), few)
    };
    claims.push(
        Claim::new(
            "section 3.5, Fig. 12",
            "Sessions with fewer than ten missed opportunities",
            "90 %",
            format!(
                "{} %; with dormouse's {} %",
                shown(missed("paper", outgoing)),
                shown(missed("dormouse", outgoing))
            ),
        )
        .judged(Expect::about(90.0, POINTS), missed("paper", outgoing)),
    );
    let more = [shares.more(&ours_all, &paper_all), shares.more(&ours, &paper)];
    claims.push(saves_more("the paper's", more, ""));
    claims.extend(saves_more_than_most_favourable(first_ages));
    claims.extend(how_much(traffic, shares, [&ours_all, &ours]));
    claims
}

/// Whether Dormouse's scheduler saves more than another, with every packet waking and with only what the client sends.
fn saves_more(than: &str, more: [Option<Measured>; 2], of_which: &str) -> Claim {
    let [all, outgoing] = more.map(shown);
    Claim::new(
        "not in the paper",
        &format!("Dormouse's scheduler saves more than {than}"),
        "–",
        format!("{outgoing} points more, with every packet waking {all}{of_which}"),
    )
    .judged_all(&more.map(|figure| (Expect::above(0.0), figure)))
}

/// The same against the paper's scheduler at the first age that suits it best, which no device can know.
fn saves_more_than_most_favourable(first_ages: &[FirstAges; 2]) -> Option<Claim> {
    let [all, outgoing] = first_ages;
    let [(at_all, all), (at_outgoing, outgoing)] = [all.most_favourable()?, outgoing.most_favourable()?];
    let than = "the paper's at the first age, of those tried, at which that saves most";
    let of_which = format!(" (from {at_outgoing} s and {at_all} s on)");
    Some(saves_more(than, [all.ours_more, outgoing.ours_more], &of_which))
}

/// On synthetic traffic, whose law is known: whether Dormouse's scheduler (with every packet waking, and with only what the client sends) is as
/// good as the best fixed time-out, which no device can know, and how much is left for any policy.
fn how_much(traffic: &Traffic, shares: Shares, ours: [&Clients; 2]) -> Vec<Claim> {
    let cost = traffic.questions.settings.cost;
    let [Some(all), Some(outgoing)] =
        [WakeOn::All, WakeOn::Outgoing].map(|wake_on| law::follow(&traffic.idle, wake_on, cost))
    else {
        return Vec::new();
    };
    let fixed = [&traffic.all, &traffic.outgoing].map(|results| best_fixed(results).1);
    let beyond = [0, 1].map(|which: usize| shares.more(ours[which], &fixed[which]));
    let left = [shares.more(&all, ours[0]), shares.more(&outgoing, ours[1])];
    let both = |[all, outgoing]: [Option<Measured>; 2], unit: &str| {
        let [all, outgoing] = [all, outgoing].map(shown);
        format!(
            "{all} {unit} with every packet waking, {outgoing} {unit} where only what the client sends wakes"
        )
    };
    let claim = |words: &str, ours: String, limit: f64, figures: [Option<Measured>; 2]| {
        Claim::new("not in the paper", words, "–", ours)
            .judged_all(&figures.map(|figure| (Expect::above(limit), figure)))
    };
    let shares_of = [all, outgoing].map(|clients| shares.share(&clients));
    vec![
        claim(
            "Dormouse's scheduler saves no more than a point less than the best fixed time-out in hindsight",
            both(beyond, "points more"),
            -1.0,
            beyond,
        ),
        claim(
            "A policy that knows the law of the traffic and what is hidden of each client saves more than dormouse's scheduler: so much is left for any other",
            format!(
                "{}; it has of the clairvoyant's saving {}",
                both(left, "points more"),
                both(shares_of, "%")
            ),
            0.0,
            left,
        ),
    ]
}

/// Whether the scheduler is as near the optimum as claimed when it is read as favourably as the text allows: by the first age at which it is
/// evaluated that suits it best here, and with the average user of the paper's protocol.
fn other_readings(first_ages: &[FirstAges; 2], splits: &[Splits; 2]) -> Vec<Claim> {
    let claim = |place: &str, what: String, [gap, part]: [Option<Measured>; 2], of_which: &str| {
        let paper = "within 3.5 points, over 90 % of the maximum";
        let ours = format!("{} points, {} % of the maximum{of_which}", shown(gap), shown(part));
        Claim::new(place, &what, paper, ours)
            .judged_all(&[(Expect::below(3.5), gap), (Expect::above(90.0), part)])
    };
    let wakes = ["every packet waking", "only what the client sends waking"];
    let protocol = splits.iter().zip(wakes).map(|(splits, wakes)| {
        let what =
            format!("Both by the paper's protocol: the average user from all but 100 sessions, {wakes}");
        claim("section 3.5, scheduler performance", what, splits.paper, "")
    });
    let favourable = first_ages.iter().zip(wakes).filter_map(|(ages, wakes)| {
        let (age, of) = ages.most_favourable()?;
        let what = format!("Both at the first age, of those tried, at which the rule saves most, {wakes}");
        Some(claim("section 3.5, Eqs. 5 to 8", what, [of.gap, of.of_maximum], &format!(" from {age} s on")))
    });
    protocol.chain(favourable).collect()
}

/// Figure 7: whether another pair of thresholds saves more than the paper's. The best of them on one half of the clients is judged on the
/// other half: on its own half it leads by luck too.
fn best_thresholds(traffic: &Traffic, shares: Shares) -> Option<Claim> {
    let half = |n: usize, odd: usize| -> Clients {
        under_thresholds(&traffic.outgoing, 1, n).into_iter().skip(odd).step_by(2).collect()
    };
    let many = THRESHOLDS.len();
    let theirs = many - 1;
    let others = (0..many * many).filter(|n| *n != theirs);
    let means = others.filter_map(|n| Some((n, shares.mean(&half(n, 0))?.value)));
    let (best, _) = means.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let (alpha, beta) = (THRESHOLDS.get(best / many)?, THRESHOLDS.get(best % many)?);
    let more = shares.more(&half(best, 1), &half(theirs, 1));
    Some(
        Claim::new(
            "section 3.5, Fig. 7",
            "No thresholds are better than alpha 0.5 and beta 0.8, by a point",
            "the best",
            format!(
                "alpha {alpha} and beta {beta}, the best others on one half of the sample, save {} points more on the other half",
                shown(more)
            ),
        )
        .judged(Expect::below(1.0), more),
    )
}

/// Figure 7: which way the mean saving goes as one threshold goes from the least to the largest that was tried. Of the other threshold all
/// values count alike: the sessions under each of them stand side by side.
fn directions(traffic: &Traffic, shares: Shares) -> [Claim; 2] {
    let many = THRESHOLDS.len();
    let pooled = |protocol: usize, pair: &dyn Fn(usize) -> usize| -> Clients {
        let mut sum: Clients = vec![Vec::new(); traffic.outgoing.clients.len()];
        for other in 0..many {
            let clients = under_thresholds(&traffic.outgoing, protocol, pair(other));
            sum.iter_mut().zip(clients).for_each(|(sum, sessions)| sum.extend(sessions));
        }
        sum
    };
    // By protocol of `EXTREMES`.
    let alpha = [0, 1].map(|protocol| {
        let at = |alpha: usize| pooled(protocol, &|beta| alpha * many + beta);
        shares.more(&at(many - 1), &at(0))
    });
    let beta = [0, 1].map(|protocol| {
        let at = |beta: usize| pooled(protocol, &|alpha| alpha * many + beta);
        shares.more(&at(many - 1), &at(0))
    });
    let claim = |words: &str, paper: &str, more: [Option<Measured>; 2], expect: Expect| {
        let each = EXTREMES.iter().zip(more).map(|(r, more)| format!("{} with {}", shown(more), r.name()));
        let ours = format!("points from 0.5 to 0.8: {}", each.collect::<Vec<_>>().join(", "));
        Claim::new("section 3.5, Fig. 7", words, paper, ours).judged_all(&more.map(|m| (expect, m)))
    };
    [
        claim(
            "As alpha increases, the average savings decrease",
            "they decrease: the conservative prediction misses opportunities",
            alpha,
            Expect::below(0.0),
        ),
        claim(
            "As beta increases, better average savings are achieved",
            "better: the conservative prediction avoids false positives",
            beta,
            Expect::above(0.0),
        ),
    ]
}

/// So many points of the mean saving may be lost by a wrong belief that does not matter.
const IMMUNE: f64 = 1.0;

/// Figure 9: what it costs to believe in another load of the gateway than there is.
fn misjudged(traffic: &Traffic, shares: Shares) -> Claim {
    let believing = |truth: usize, believed: usize| {
        under(
            &traffic.outgoing,
            |c| c.extra.results.misjudged.get(truth).map(Vec::as_slice).unwrap_or_default(),
            believed,
        )
    };
    let mut figures = Vec::new();
    let mut words = Vec::new();
    for (t, truth) in LOADS.iter().enumerate() {
        for (b, believed) in LOADS.iter().enumerate().filter(|(b, _)| *b != t) {
            let lost = shares.more(&believing(t, t), &believing(t, b));
            words.push(format!("{} at load {truth} taken for {believed}", shown(lost)));
            figures.push((Expect::below(IMMUNE), lost));
        }
    }
    Claim::new(
        "section 3.5, Fig. 9",
        "IGF with MOBIKE is fairly immune to a poor estimate of the break-even time: a wrong load costs less than a point of the mean saving",
        "fairly immune",
        format!("points lost: {}", words.join(", ")),
    )
    .judged_all(&figures)
}

/// So few percent of the sessions are next to none: half of the 2 % that the paper counts.
const NEXT_TO_NONE: f64 = 1.0;

/// Figure 8: who pays for sleeping, and how much.
fn penalties(traffic: &Traffic, shares: Shares) -> [Claim; 3] {
    let part = |protocol: Resumption, policy: usize, holds: fn(f64) -> bool| {
        let number = Resumption::ALL.iter().position(|r| *r == protocol).unwrap_or(0);
        let sessions = under(
            &traffic.outgoing,
            |c| c.extra.results.protocols.get(number).map(Vec::as_slice).unwrap_or_default(),
            policy,
        );
        shares.part(&sessions, holds)
    };
    let loses = |protocol, policy| part(protocol, policy, |saved| saved < 0.0);
    let much = |protocol, policy| part(protocol, policy, |saved| saved <= -10.0);
    let claim = |place: &str, what: &str, paper: &str, policy: usize, expect: Expect| {
        let ours = format!(
            "{} % with full IKEv2, {} % with MOBIKE and tickets; dormouse's scheduler {} and {} %",
            shown(loses(Resumption::Full, policy)),
            shown(loses(PROTOCOL, policy)),
            shown(loses(Resumption::Full, 2)),
            shown(loses(PROTOCOL, 2))
        );
        Claim::new(place, what, paper, ours).judged(expect, loses(Resumption::Full, policy))
    };
    [
        claim(
            "section 3.5, Fig. 8a",
            "Sessions that pay for sleeping at alpha 0.8 and beta 0.5, with IKEv2",
            "less than 15 %",
            0,
            Expect::below(15.0),
        ),
        claim(
            "section 3.5, Fig. 8b",
            "The same at alpha 0.5 and beta 0.8",
            "around 2 %",
            1,
            Expect::about(2.0, 2.0),
        ),
        Claim::new(
            "section 3.5, Fig. 8b",
            "Sessions that spend at least 10 % more by sleeping at alpha 0.5 and beta 0.8, with IKEv2",
            "none: around 2 % of users spend less than 10 % more",
            format!(
                "{} % with full IKEv2, {} % with MOBIKE and tickets; dormouse's scheduler {} and {} %",
                shown(much(Resumption::Full, 1)),
                shown(much(PROTOCOL, 1)),
                shown(much(Resumption::Full, 2)),
                shown(much(PROTOCOL, 2))
            ),
        )
        .judged(Expect::below(NEXT_TO_NONE), much(Resumption::Full, 1)),
    ]
}

/// Figure 11: sessions that lose no packet.
fn losses(traffic: &Traffic, shares: Shares) -> [Claim; 3] {
    // Policy (0 `paper`, 1 `dormouse`), and what the gateway answers: nothing, what the paper's does, what one of today does.
    let free = |policy: usize, proxy: usize| {
        let none = move |s: &ClientReport| {
            let (_, t) = s.policies.get(policy).copied().unwrap_or_default();
            t.packets_lost + if proxy == 0 { t.packets_proxied } else { 0 } == 0
        };
        shares.counted(&traffic.outgoing, |c| c.extra.results.loss.get(usize::from(proxy == 2)), none)
    };
    let claim = |proxy: usize, what: &str, paper: &str| {
        let ours =
            format!("{} %; with dormouse's scheduler {} %", shown(free(0, proxy)), shown(free(1, proxy)));
        Claim::new("section 3.5, Fig. 11", what, paper, ours)
    };
    [
        claim(0, "Sessions without a lost packet, where the gateway does not answer for the client", "60 %")
            .judged(Expect::about(60.0, POINTS), free(0, 0)),
        claim(1, "The same, gateway answering DHCP, DNS and MICROSOFT-DS", "70 %")
            .judged(Expect::about(70.0, POINTS), free(0, 1)),
        claim(2, "The same with a gateway that knows today's background protocols (not in the paper)", "–"),
    ]
}
