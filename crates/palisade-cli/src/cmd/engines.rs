use palisade::{EngineInfo, Profile};
use serde_json::{Value, json};

use crate::args::Engines;
use crate::exit::{OK, Outcome};
use crate::output::{bold, line};

/// Lists the engines and what each promises.
pub(crate) fn engines(args: &Engines) -> Outcome {
    let engines = palisade::engines();
    if args.format.json {
        line(engines.iter().map(json_of).collect::<Value>())?;
        return Ok(OK);
    }
    for engine in &engines {
        line(format_args!("{}  {}", bold(engine.name), engine.url))?;
        let Some(profile) = &engine.profile else {
            line(format_args!("  not in this build; feature {}", engine.feature.unwrap_or(engine.name)))?;
            continue;
        };
        for (name, promise) in promises(profile) {
            line(format_args!("  {name:<12} {promise}"))?;
        }
    }
    Ok(OK)
}

fn json_of(engine: &EngineInfo) -> Value {
    let profile = engine.profile.as_ref().map(|profile| {
        promises(profile).into_iter().map(|(name, promise)| (name.to_owned(), promise.into())).collect()
    });
    json!({
        "engine": engine.name,
        "url": engine.url,
        "feature": engine.feature,
        "profile": profile.map_or(Value::Null, Value::Object),
    })
}

fn promises(profile: &Profile) -> Vec<(&'static str, String)> {
    let offered = |offers: &[(bool, &str)]| {
        let names: Vec<&str> = offers.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let tokens = match profile.tokens.assumes {
        None => profile.tokens.source.to_owned(),
        Some(assumes) => format!("{}, assuming {assumes}", profile.tokens.source),
    };
    vec![
        ("reach", profile.reach.to_string()),
        ("consistency", profile.consistency.to_string()),
        ("fairness", profile.fairness.to_string()),
        ("tokens", tokens),
        ("wakeup", profile.wakeup.to_string()),
        ("liveness", profile.liveness.to_string()),
        ("durability", profile.durability.to_string()),
        (
            "modes",
            offered(&[(true, "exclusive"), (profile.modes.shared, "shared"), (profile.modes.slots, "slots")]),
        ),
        ("names", profile.families.to_string()),
        ("registers", offered(&[(profile.registers, "kept"), (profile.register_expiry, "can expire")])),
        ("evict", if profile.evict { "one claim" } else { "no" }.to_owned()),
        (
            "round trips",
            format!(
                "{} to take, {} to release, {} to renew",
                profile.trips.claim, profile.trips.withdraw, profile.trips.renew
            ),
        ),
    ]
}
