//! What a gateway has to let go of: lineages that moved to another gateway, or ended, while it had them. Owns the table `orders`; an order
//! is written in the transaction that moves or removes the row, so that none is lost.

use dormouse_ike::ticket::lineage::Name;

use crate::error::Error;
use crate::join::Database;
use crate::link::Link;

/// Orders that are handed out at a time.
const MOST: i64 = 10_000;

/// The session of this lineage is no longer ours: drop its SA, routes and packets that wait for it, and tell the device nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// Its number, to be named when it has been obeyed.
    pub seq: i64,
    /// The lineage.
    pub lineage: Name,
}

/// What has come back meanwhile is no order any more.
const STALE: &str = "delete from dormouse.orders o using dormouse.lineage l
    where o.gateway = $1 and l.id = o.lineage and l.gateway = $1";
const READ: &str =
    "select o.seq, o.lineage from dormouse.orders o left join dormouse.lineage l on l.id = o.lineage
    where o.gateway = $1 and l.gateway is distinct from $1 order by o.seq limit $2";
const OBEYED: &str = "delete from dormouse.orders where gateway = $1 and seq = any($2)";

impl Database {
    /// Orders for this gateway that were not obeyed yet, oldest first, 10,000 at most: ask again after [`Database::obeyed`] of
    /// so many. An order may come again; obeying it twice does no harm.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn orders(&mut self) -> Result<Vec<Order>, Error> {
        let work = async |link: &mut Link| {
            let gateway = link.gateway.clone();
            link.query(STALE, &[&gateway]).await?;
            let rows = link.query(READ, &[&gateway, &MOST]).await?;
            let order = |row| {
                let cells = link.cells("orders", row);
                Ok(Order { seq: cells.get(0)?, lineage: Name(cells.bytes(1, "lineage")?) })
            };
            rows.iter().map(order).collect()
        };
        self.link.within("read orders", work).await
    }

    /// These have been obeyed.
    ///
    /// # Errors
    /// See [`Error`]; they come again then.
    pub async fn obeyed(&mut self, orders: &[Order]) -> Result<(), Error> {
        let numbers: Vec<i64> = orders.iter().map(|order| order.seq).collect();
        let work = async |link: &mut Link| {
            link.query(OBEYED, &[&link.gateway.clone(), &numbers]).await?;
            Ok(())
        };
        self.link.within("delete orders", work).await
    }
}
