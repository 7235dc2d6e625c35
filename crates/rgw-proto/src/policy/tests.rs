use proptest::prelude::*;

use super::*;

fn user(account: &str, name: &str) -> Principal {
    Principal::User { account: account.into(), name: name.into() }
}

fn judge(
    statement: &str,
    who: &Principal,
    action: &str,
    resource: &str,
    keys: &[(&str, &str)],
) -> Verdict {
    let text = format!("{{\"Version\": \"2012-10-17\", \"Statement\": [{statement}]}}");
    let policy =
        Policy::parse(&text, Kind::Resource).unwrap_or_else(|e| panic!("{statement}: {e}"));
    let mut context = Context::default();
    for (key, value) in keys {
        context.add(key, *value);
    }
    policy.judge(&Ask { who, action, resource, context: &context })
}

const ALL: &str = r#""Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": "*""#;

#[test]
fn deny_wins() {
    let deny = ALL.replace("Allow", "Deny").replace("s3:*", "s3:DeleteObject");
    for order in [format!("{{{ALL}}}, {{{deny}}}"), format!("{{{deny}}}, {{{ALL}}}")] {
        assert_eq!(
            judge(&order, &user("", "a"), "s3:DeleteObject", "arn:aws:s3:::b/k", &[]),
            Verdict::Deny
        );
        assert_eq!(
            judge(&order, &user("", "a"), "s3:GetObject", "arn:aws:s3:::b/k", &[]),
            Verdict::Allow
        );
    }
    assert_eq!(judge("", &user("", "a"), "s3:GetObject", "arn:aws:s3:::b", &[]), Verdict::Silent);
}

#[test]
fn principals_actions_resources() {
    let is = |from: &str, to: &str, who: &Principal, action: &str, resource: &str| {
        let statement = format!("{{{}}}", ALL.replace(from, to));
        judge(&statement, who, action, resource, &[]) == Verdict::Allow
    };
    let (a, key) = (user("t", "a"), "arn:aws:s3:::b/x/y");
    let who = |to: &str, who: &Principal| is(r#""Principal": "*""#, to, who, "s3:GetObject", key);
    assert!(who(r#""Principal": {"AWS": "*"}"#, &Principal::Anonymous));
    assert!(who(r#""Principal": {"AWS": ["x", "arn:aws:iam::t:user/a"]}"#, &a));
    assert!(!who(r#""Principal": {"AWS": "arn:aws:iam::t:user/ab"}"#, &a));
    assert!(!who(r#""Principal": {"AWS": "arn:aws:iam:::user/a"}"#, &a));
    assert!(
        who(r#""Principal": {"AWS": "arn:aws:iam::t:root"}"#, &a)
            && who(r#""Principal": {"AWS": "t"}"#, &a)
    );
    assert!(who(r#""Principal": {"CanonicalUser": "t$a"}"#, &a));
    assert!(
        !who(r#""NotPrincipal": {"AWS": "t"}"#, &a) && who(r#""NotPrincipal": {"AWS": "u"}"#, &a)
    );
    assert!(!who(r#""Principal": {"Service": "logging.s3.amazonaws.com"}"#, &a));
    let role = Principal::Role { account: "t".into(), name: "r".into() };
    assert!(who(r#""Principal": {"AWS": "arn:aws:iam::t:role/r"}"#, &role));
    let action = |to: &str, action: &str| is(r#""Action": "s3:*""#, to, &a, action, key);
    assert!(
        action(r#""Action": ["s3:get*"]"#, "s3:GetObject")
            && !action(r#""Action": "s3:Get?bject""#, "s3:GetObjectAcl")
    );
    assert!(
        !action(r#""NotAction": "s3:GetObject""#, "s3:GetObject")
            && action(r#""NotAction": "s3:GetObject""#, "s3:PutObject")
    );
    let resource = |to: &str| is(r#""Resource": "*""#, to, &a, "s3:GetObject", key);
    assert!(
        resource(r#""Resource": "arn:aws:s3:::b/*""#)
            && resource(r#""Resource": ["arn:aws:s3:::c", "arn:*:s3:*:*:b/?/y"]"#)
    );
    assert!(
        !resource(r#""Resource": "arn:aws:s3:::b""#)
            && !resource(r#""Resource": "arn:aws:sns:::b/*""#)
    );
    assert!(!resource(r#""NotResource": "arn:aws:s3:::b/*""#));
}

#[test]
fn variables_stand_for_themselves() {
    let statement = format!(
        "{{{}}}",
        ALL.replace(r#""Resource": "*""#, r#""Resource": "arn:aws:s3:::b/${aws:username}/*""#)
    );
    let is = |name: &str, resource: &str| {
        judge(&statement, &user("", name), "s3:GetObject", resource, &[("aws:username", name)])
            == Verdict::Allow
    };
    assert!(is("anna", "arn:aws:s3:::b/anna/x") && !is("anna", "arn:aws:s3:::b/otto/x"));
    assert!(!is("*", "arn:aws:s3:::b/otto/x"), "a user named * is no pattern");
    assert_eq!(
        judge(&statement, &Principal::Anonymous, "s3:GetObject", "arn:aws:s3:::b//x", &[]),
        Verdict::Silent
    );
}

#[test]
fn conditions() {
    let is = |condition: &str, keys: &[(&str, &str)]| {
        let statement = format!("{{{ALL}, \"Condition\": {condition}}}");
        judge(&statement, &user("", "a"), "s3:GetObject", "arn:aws:s3:::b/k", keys)
            == Verdict::Allow
    };
    for (condition, value, want) in [
        (r#"{"StringEquals": {"k": ["a", "b"]}}"#, Some("b"), true),
        (r#"{"StringEquals": {"K": "a*"}}"#, Some("ab"), false),
        (r#"{"StringEquals": {"k": "a"}}"#, None, false),
        (r#"{"StringEqualsIfExists": {"k": "a"}}"#, None, true),
        (r#"{"StringNotEquals": {"k": ["a", "b"]}}"#, Some("b"), false),
        (r#"{"StringNotEquals": {"k": "a"}}"#, None, true),
        (r#"{"StringLike": {"k": "a*c?"}}"#, Some("abcd"), true),
        (r#"{"StringNotLike": {"k": "a*"}}"#, Some("ab"), false),
        (r#"{"StringEqualsIgnoreCase": {"k": "AbC"}}"#, Some("aBc"), true),
        (r#"{"NumericLessThan": {"k": 10}}"#, Some("9"), true),
        (r#"{"NumericLessThan": {"k": "10"}}"#, Some("10"), false),
        (r#"{"NumericNotEquals": {"k": [1, 2]}}"#, Some("3"), true),
        (r#"{"NumericGreaterThanEquals": {"k": 1}}"#, Some("x"), false),
        (
            r#"{"DateGreaterThan": {"k": "2026-01-01T00:00:00Z"}}"#,
            Some("2026-01-01T00:00:01Z"),
            true,
        ),
        (r#"{"DateLessThan": {"k": "1767225600"}}"#, Some("2026-01-01T00:00:00Z"), false),
        (r#"{"Bool": {"k": true}}"#, Some("true"), true),
        (r#"{"Bool": {"k": "false"}}"#, Some("true"), false),
        (r#"{"IpAddress": {"k": ["10.0.0.0/8", "fd00::/16"]}}"#, Some("10.255.0.1"), true),
        (r#"{"IpAddress": {"k": "10.0.0.0/8"}}"#, Some("11.0.0.1"), false),
        (r#"{"IpAddress": {"k": "0.0.0.0/0"}}"#, Some("11.0.0.1"), true),
        (r#"{"NotIpAddress": {"k": "fd00::/16"}}"#, Some("fd00::1"), false),
        (r#"{"Null": {"k": "true"}}"#, None, true),
        (r#"{"Null": {"k": true}}"#, Some("x"), false),
        (r#"{"ArnLike": {"k": "arn:aws:s3:::b/*"}}"#, Some("arn:aws:s3:::b/x"), true),
        (r#"{"ArnNotEquals": {"k": "arn:aws:s3:::b/*"}}"#, Some("arn:aws:s3:::b/x"), false),
        (r#"{"ForAnyValue:StringEquals": {"k": "a"}}"#, None, false),
        (r#"{"ForAllValues:StringEquals": {"k": "a"}}"#, None, true),
    ] {
        let keys: Vec<_> = value.map(|v| ("k", v)).into_iter().collect();
        assert_eq!(is(condition, &keys), want, "{condition} {value:?}");
    }
    let two = [("k", "a"), ("k", "b")];
    assert!(
        is(r#"{"ForAnyValue:StringEquals": {"k": "a"}}"#, &two)
            && !is(r#"{"ForAllValues:StringEquals": {"k": "a"}}"#, &two)
    );
    assert!(is(r#"{"ForAllValues:StringEquals": {"k": ["a", "b", "c"]}}"#, &two));
    assert!(!is(r#"{"StringNotEquals": {"k": "a"}}"#, &two));
    assert!(
        !is(r#"{"StringEquals": {"k": "a"}, "Bool": {"k": true}}"#, &[("k", "a")]),
        "all must hold"
    );
}

#[test]
fn what_is_refused() {
    let statement =
        |from: &str, to: &str| format!("{{\"Statement\": [{{{}}}]}}", ALL.replace(from, to));
    for bad in [
        "",
        "[]",
        "{}",
        r#"{"Statement": 1}"#,
        r#"{"Statement": [], "Version": "2020-01-01"}"#,
        r#"{"Statement": [], "Extra": 1}"#,
        r#"{"Statement": [], "Statement": []}"#,
        &statement("Allow", "allow"),
        &statement("\"Effect\": \"Allow\", ", ""),
        &statement("\"Principal\": \"*\"", "\"Principal\": \"a\""),
        &statement("\"Principal\": \"*\"", "\"Principal\": {\"Aws\": \"*\"}"),
        &statement("\"Principal\": \"*\"", "\"Principal\": {\"AWS\": \"arn:aws:iam::t:group/g\"}"),
        &statement("\"Principal\": \"*\", ", ""),
        &statement("\"Resource\": \"*\"", "\"Resource\": \"bucket\""),
        &statement("\"Resource\": \"*\"", "\"Resource\": \"*\", \"NotResource\": \"*\""),
        &statement("\"Resource\": \"*\"", "\"Resource\": \"*\", \"Conditions\": {}"),
        &statement(
            "\"Resource\": \"*\"",
            "\"Resource\": \"*\", \"Condition\": {\"StringIs\": {\"k\": \"v\"}}",
        ),
        &statement(
            "\"Resource\": \"*\"",
            "\"Resource\": \"*\", \"Condition\": {\"IpAddress\": {\"k\": \"10.0.0.0/33\"}}",
        ),
        &statement(
            "\"Resource\": \"*\"",
            "\"Resource\": \"*\", \"Condition\": {\"Bool\": {\"k\": \"maybe\"}}",
        ),
        &"[".repeat(100_000),
    ] {
        let error = Policy::parse(bad, Kind::Resource).expect_err(&bad[..bad.len().min(200)]);
        assert_eq!(error.code, Code::MalformedPolicyDocument);
    }
    assert!(
        Policy::parse(&statement("", ""), Kind::Identity).is_err(),
        "a user's policy has no principal"
    );
    assert!(Policy::parse(&statement("\"Principal\": \"*\", ", ""), Kind::Identity).is_ok());
}

#[test]
fn public() {
    let is = |from: &str, to: &str| {
        let text = format!("{{\"Statement\": [{{{}}}]}}", ALL.replace(from, to));
        Policy::parse(&text, Kind::Resource).unwrap().is_public()
    };
    assert!(
        is("", "")
            && !is("Allow", "Deny")
            && !is("\"Principal\": \"*\"", "\"Principal\": {\"AWS\": \"t\"}")
    );
    let with = |condition: &str| {
        is("\"Resource\": \"*\"", &format!("\"Resource\": \"*\", \"Condition\": {condition}"))
    };
    assert!(
        !with(r#"{"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}"#)
            && with(r#"{"IpAddress": {"aws:SourceIp": "0.0.0.0/0"}}"#)
    );
    assert!(
        with(r#"{"StringLike": {"aws:userid": "*"}}"#)
            && with(r#"{"StringEquals": {"s3:prefix": "x"}}"#)
    );
    assert!(with(r#"{"NotIpAddress": {"aws:SourceIp": "10.0.0.0/8"}}"#));
}

/// As slow and as plain as can be.
fn slow(pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['*', rest @ ..] => (0..=text.len()).any(|n| slow(rest, &text[n..])),
        ['?', rest @ ..] => !text.is_empty() && slow(rest, &text[1..]),
        [c, rest @ ..] => text.first() == Some(c) && slow(rest, &text[1..]),
    }
}

proptest! {
    #[test]
    fn patterns_as_the_plain_matcher(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
        let (p, t): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
        prop_assert_eq!(Pattern::plain(&pattern).fits(&text, &Context::default()), slow(&p, &t));
    }

    /// No text makes the reader panic.
    #[test]
    fn any_text(text in any::<String>(), value in "[ -~]*") {
        let _ = Policy::parse(&text, Kind::Resource);
        let condition = serde_json::json!({"IpAddress": {"k": &value}, "DateEquals": {"k": &value}, "ArnLike": {"k": value}});
        let _ = condition::parse(&condition);
    }
}
