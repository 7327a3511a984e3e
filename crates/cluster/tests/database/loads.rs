//! What gateways have learned about load: each its own, and who reads which first.

use crate::support::{World, block, possible, shared};
use dormouse_cluster::{Error, HISTORY_MOST};

#[test]
fn a_gateway_that_has_lost_what_it_learned_finds_it_again_or_anothers() {
    if !possible("a_gateway_that_has_lost_what_it_learned_finds_it_again_or_anothers") {
        return;
    }
    block(async {
        let world = World::new(shared(), None).await;
        let (mut north, mut south) = (world.join("north").await, world.join("south").await);
        let mut east = world.join("east").await;
        assert!(north.load_histories().await.unwrap().is_empty());
        north.keep_load(b"first").await.unwrap();
        north.keep_load(b"north's").await.unwrap();
        south.keep_load(b"south's").await.unwrap();
        world
            .raw()
            .await
            .execute(
                "update dormouse.load_history set written = written - 60 where gateway = $1",
                &[&world.name("south")],
            )
            .await
            .unwrap();
        assert_eq!(south.load_histories().await.unwrap(), [b"south's", b"north's"]);
        assert_eq!(east.load_histories().await.unwrap(), [b"north's", b"south's"], "the newest");
        // With its bound, which the table has too.
        let long = vec![7; HISTORY_MOST + 1];
        assert!(matches!(east.keep_load(&long).await, Err(Error::Settings(_))));
        let row = "insert into dormouse.load_history values ($1, 0, $2)";
        let refused = world.raw().await.execute(row, &[&world.name("east"), &long]).await.unwrap_err();
        assert_eq!(refused.code(), Some(&tokio_postgres::error::SqlState::CHECK_VIOLATION));
        east.keep_load(&long[1..]).await.unwrap();
        // It goes with its gateway.
        world.admin().await.forget_gateway(&world.name("north")).await.unwrap();
        assert_eq!(world.count("select count(*) from dormouse.load_history").await, 2);
    });
}
