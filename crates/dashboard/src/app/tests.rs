use env::Seeded;

use super::*;
use crate::accounts::{Accounts, User};
use crate::state::tests::answers;

/// A cluster with two accounts: one that may do everything, one that may read.
#[derive(Default)]
pub(crate) struct Fake {
    /// Commands that were done, and as whom.
    done: RefCell<Vec<(String, String)>>,
}

const PASSWORD: &str = "correct horse";

fn stored() -> String {
    let mut accounts = Accounts::default();
    for name in ["ann", "bob", "none", "shut"] {
        let user = User {
            username: name.to_owned(),
            // Of few rounds, so that tests are quick.
            password: Some(bcrypt::hash_with_salt(PASSWORD, 4, [1; 16]).unwrap().to_string()),
            roles: Vec::new(),
            name: None,
            email: None,
            last_update: 0,
            enabled: name != "shut",
            pwd_expiration_date: None,
            pwd_update_required: false,
        };
        accounts.add(user).unwrap();
    }
    accounts.text()
}

impl Mons for Fake {
    async fn ask(&self, command: Value, _: Bytes) -> Answer {
        assert_eq!(command["key"], accounts::KEY);
        Answer { out: stored().into(), ..Answer::default() }
    }
}

impl World for Fake {
    async fn ask_as(&self, user: &str, command: Value) -> Answer {
        let args = cli::Args::parse(&[command.to_string()]).unwrap();
        let known = cli::find(&args).unwrap_or_else(|| panic!("no command {command}"));
        let caps = match user {
            "ann" => "allow *",
            "bob" => "allow r",
            _ => "",
        };
        let caps = auth::MonCap::parse_lenient(caps);
        let wants = known.perm.bytes().map(|c| match c {
            b'r' => auth::Rights::R.0,
            b'w' => auth::Rights::W.0,
            _ => auth::Rights::X.0,
        });
        let may = caps.is_capable(&auth::MonAccess {
            name: &format!("client.dashboard.{user}").parse().unwrap(),
            addr: &types::EntityAddr::default(),
            service: known.module,
            command: args.prefix(),
            args: &BTreeMap::new(),
            wants: auth::Rights(wants.fold(0, |all, one| all | one)),
        });
        if !may {
            return Answer { r: -EACCES, rs: "access denied".to_owned(), ..Answer::default() };
        }
        self.done.borrow_mut().push((user.to_owned(), args.prefix().to_owned()));
        Answer { out: "{}".into(), ..Answer::default() }
    }

    async fn object_names(&self, _: &str, _: &str) -> Result<ObjectNames, Answer> {
        Ok(ObjectNames::default())
    }

    async fn images(&self) -> BTreeMap<i64, Vec<String>> {
        BTreeMap::new()
    }
}

pub(crate) fn app() -> App<Fake> {
    let app = App::new(Fake::default(), Box::new(Seeded(1)));
    app.take(answers());
    app
}

fn get(path: &str, token: &str) -> Asked {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    Asked {
        path: path.to_owned(),
        query: query.to_owned(),
        host: "h:8443".to_owned(),
        cookie: Some(token.to_owned()),
        from: "10.0.0.1".to_owned(),
        ..Asked::default()
    }
}

fn post(path: &str, token: &str, body: &str) -> Asked {
    let body = Bytes::copy_from_slice(body.as_bytes());
    Asked { is_post: true, body, ..get(path, token) }
}

fn text(reply: &Reply) -> String {
    match &reply.body {
        Body::Whole(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        Body::Events(_) => "events".to_owned(),
    }
}

async fn login(app: &App<Fake>, user: &str) -> String {
    let body = format!("username={user}&password=correct+horse");
    let reply = app.answer(&post("/login", "", &body)).await;
    assert_eq!((reply.status, reply.location.as_deref()), (303, Some("/")), "{}", text(&reply));
    reply.cookie.expect("a session")
}

/// The word that a session's forms carry.
async fn word(app: &App<Fake>, token: &str) -> String {
    let page = text(&app.answer(&get("/osds", token)).await);
    let at = page.find("name=\"csrf\" value=\"").expect("a form") + "name=\"csrf\" value=\"".len();
    page[at..at + 64].to_owned()
}

#[test]
fn without_a_login_there_is_nothing() {
    rt::run_local(async {
        let app = app();
        for path in ["/", "/why", "/osds", "/keys", "/events", "/confirm/osd-out?id=1", "/x"] {
            for token in ["", "0000"] {
                let reply = app.answer(&get(path, token)).await;
                assert_eq!(
                    (reply.status, reply.location.as_deref()),
                    (303, Some("/login")),
                    "{path}"
                );
            }
        }
        let reply = app.answer(&post("/do/osd-out", "", "id=1")).await;
        assert_eq!(reply.location.as_deref(), Some("/login"));
        for path in ["/api/health/minimal", "/api/osd"] {
            assert_eq!(app.answer(&get(path, "")).await.status, 401, "{path}");
        }
        assert!(app.world.done.borrow().is_empty());
        assert_eq!(app.answer(&get("/static/style.css", "")).await.status, 200);
    })
    .unwrap();
}

#[test]
fn logins() {
    rt::run_local(async {
        let app = app();
        for (user, password) in [
            ("ann", "wrong"),
            ("nobody", PASSWORD),
            ("shut", PASSWORD),
            ("", PASSWORD),
            ("ann", ""),
        ] {
            let body = format!("username={user}&password={}", pages::escaped(password));
            let reply = app.answer(&post("/login", "", &body)).await;
            assert_eq!((reply.status, reply.cookie.is_none()), (401, true), "{user}");
        }
        let token = login(&app, "ann").await;
        assert_eq!(app.answer(&get("/", &token)).await.status, 200);
        let csrf = word(&app, &token).await;
        let out = app.answer(&post("/logout", &token, &format!("csrf={csrf}"))).await;
        assert_eq!(out.cookie.as_deref(), Some(""));
        assert_eq!(app.answer(&get("/", &token)).await.status, 303);
        let (first, second) = (login(&app, "ann").await, login(&app, "bob").await);
        app.end_all_of("ann");
        assert_eq!(app.answer(&get("/", &first)).await.status, 303, "its account is gone");
        assert_eq!(app.answer(&get("/", &second)).await.status, 200);
    })
    .unwrap();
}

/// A login ends the session that the browser had.
#[test]
fn sessions_are_not_carried_over() {
    rt::run_local(async {
        let app = app();
        let old = login(&app, "bob").await;
        let body = "username=ann&password=correct+horse";
        let new = app.answer(&post("/login", &old, body)).await.cookie.unwrap();
        assert_ne!(new, old);
        assert_eq!(app.answer(&get("/", &old)).await.status, 303);
    })
    .unwrap();
}

#[test]
fn who_guesses_is_made_to_wait() {
    rt::run_local(async {
        let app = app();
        let body = "username=ann&password=guess";
        for _ in 0..5 {
            assert_eq!(app.answer(&post("/login", "", body)).await.status, 401);
        }
        let right = "username=ann&password=correct+horse";
        assert_eq!(app.answer(&post("/login", "", right)).await.status, 429);
        let elsewhere = Asked { from: "10.0.0.2".to_owned(), ..post("/login", "", right) };
        assert_eq!(app.answer(&elsewhere).await.status, 429, "the account waits, too");
    })
    .unwrap();
}

/// A form counts with its session's word alone, and from our own pages.
#[test]
fn no_other_site_can_act() {
    rt::run_local(async {
        let app = app();
        let token = login(&app, "ann").await;
        let other = login(&app, "ann").await;
        let (csrf, foreign) = (word(&app, &token).await, word(&app, &other).await);
        let count = || app.world.done.borrow().iter().filter(|done| done.1 == "osd out").count();
        for body in
            ["id=1", "id=1&csrf=", &format!("id=1&csrf={foreign}"), &format!("csrf={}", &csrf[1..])]
        {
            assert_eq!(app.answer(&post("/do/osd-out", &token, body)).await.status, 403, "{body}");
        }
        let body = format!("id=1&csrf={csrf}");
        let good = post("/do/osd-out", &token, &body);
        for bad in [
            Asked { site: Some("cross-site".to_owned()), ..good.clone() },
            Asked { site: Some("same-site".to_owned()), ..good.clone() },
            Asked { origin: Some("https://evil".to_owned()), ..good.clone() },
            Asked { origin: Some("null".to_owned()), ..good.clone() },
        ] {
            assert_eq!(app.answer(&bad).await.status, 403);
        }
        let by_get = Asked { is_post: false, ..good.clone() };
        assert_eq!(app.answer(&by_get).await.status, 404, "nothing changes by a GET");
        assert_eq!(count(), 0);
        let good = Asked { origin: Some("https://h:8443".to_owned()), ..good };
        let reply = app.answer(&good).await;
        assert_eq!((reply.status, reply.location.as_deref(), count()), (303, Some("/osds"), 1));
        let page = text(&app.answer(&get("/osds", &token)).await);
        assert!(page.contains("Take osd.1 out: done"), "{page}");
        assert!(!text(&app.answer(&get("/osds", &token)).await).contains("out: done"), "once");
    })
    .unwrap();
}

/// What an account does is a command of its own entity, which its caps judge.
#[test]
fn caps_judge() {
    rt::run_local(async {
        let app = app();
        let token = login(&app, "bob").await;
        let csrf = word(&app, &token).await;
        let confirm = app.answer(&get("/confirm/osd-out?id=1", &token)).await;
        assert_eq!(confirm.status, 200);
        assert!(text(&confirm).contains("ok-to-stop"), "{}", text(&confirm));
        let reply = app.answer(&post("/do/osd-out", &token, &format!("id=1&csrf={csrf}"))).await;
        assert_eq!(reply.status, 403);
        assert!(text(&reply).contains("client.dashboard.bob may not"), "{}", text(&reply));
        assert_eq!(app.answer(&get("/log", &token)).await.status, 200);
        assert_eq!(app.answer(&get("/keys", &token)).await.status, 403, "keys take more than r");
        assert!(
            app.world.done.borrow().iter().all(|(user, done)| user == "bob" && done != "osd out")
        );
        // Without any caps an account can log in, and sees nothing.
        let token = login(&app, "none").await;
        for path in ["/", "/osds", "/events", "/log", "/images"] {
            assert_eq!(app.answer(&get(path, &token)).await.status, 403, "{path}");
        }
    })
    .unwrap();
}

/// Netdata's way: a token by POST, then reads with it.
#[test]
fn rest() {
    rt::run_local(async {
        let app = app();
        let body = r#"{"username": "bob", "password": "correct horse"}"#;
        let reply = app.answer(&post("/api/auth", "", body)).await;
        assert_eq!(reply.status, 201);
        let given: Value = serde_json::from_str(&text(&reply)).unwrap();
        let token = given["token"].as_str().unwrap();
        let read = |path: &str| Asked { bearer: Some(token.to_owned()), ..get(path, "") };
        for path in ["/api/health/minimal", "/api/osd", "/api/monitor", "/api/pool?stats=true"] {
            assert_eq!(app.answer(&read(path)).await.status, 200, "{path}");
        }
        assert_eq!(app.answer(&read("/api/host")).await.status, 404);
        let by_cookie = app.answer(&get("/api/osd", token)).await;
        assert_eq!(by_cookie.status, 401, "a browser sends cookies by itself");
        let wrong = r#"{"username": "bob", "password": "x"}"#;
        assert_eq!(app.answer(&post("/api/auth", "", wrong)).await.status, 401);
        let out = Asked { bearer: Some(token.to_owned()), ..post("/api/auth/logout", "", "") };
        assert_eq!(app.answer(&out).await.status, 200);
        assert_eq!(app.answer(&read("/api/osd")).await.status, 401);
    })
    .unwrap();
}

#[test]
fn what_is_live_changes() {
    rt::run_local(async {
        let app = app();
        let token = login(&app, "bob").await;
        let reply = app.answer(&get("/events", &token)).await;
        assert!(matches!(reply.body, Body::Events(own) if own == token));
        let mut live = app.live();
        let mut answers = answers();
        answers.digest["health"]["status"] = json!("HEALTH_ERR");
        app.take(answers);
        live.changed().await.unwrap();
        let now = String::from_utf8(live.borrow().to_vec()).unwrap();
        assert!(now.contains("HEALTH_ERR") && now.starts_with("<div id=\"live\">"), "{now}");
    })
    .unwrap();
}

/// A manager that waits tells where the active one is, and nothing else.
#[test]
fn standby() {
    rt::run_local(async {
        let app = app();
        let token = login(&app, "ann").await;
        let url = "https://h2:8443/".to_owned();
        app.stand_by(Some(Standby::Redirect(Some(url.clone()))));
        for asked in [get("/osds", &token), post("/login", "", "x"), get("/api/osd", "")] {
            let reply = app.answer(&asked).await;
            assert_eq!((reply.status, reply.location.as_ref()), (303, Some(&url)));
        }
        app.stand_by(Some(Standby::Redirect(None)));
        assert_eq!(app.answer(&get("/", &token)).await.status, 503);
        app.stand_by(Some(Standby::Error(500)));
        assert_eq!(app.answer(&get("/", &token)).await.status, 500);
        app.stand_by(None);
        assert_eq!(app.answer(&get("/", &token)).await.status, 200);
    })
    .unwrap();
}
