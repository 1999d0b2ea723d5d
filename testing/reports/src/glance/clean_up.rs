//! The end: the control plane, then the operator, then the claims by hand, because nothing else deletes them.

use anyhow::{Result, ensure};
use stead_stage::Operator;

use super::Walk;
use crate::pods::{self, PATIENCE, SPACE};

impl Walk<'_> {
    pub(super) async fn clean_up(&mut self, operator: Operator) -> Result<()> {
        self.terminal.heading("Clean up")?;
        self.terminal.types("kubectl delete oscp openstack-control-plane").await?;
        self.stage
            .until("Glance is gone with its control plane", PATIENCE, || async {
                let glance = self.stage.list(SPACE, "glances,glanceapis,statefulsets", "service=glance").await?;
                Ok(glance.is_empty() && pods::glance(&self.stage, "").await?.is_empty())
            })
            .await?;
        for topology in self.stage.list(SPACE, "topologies", "").await? {
            let held = &topology["metadata"]["finalizers"];
            ensure!(held.is_null(), "Topology {} is still held: {held}", topology["metadata"]["name"]);
        }
        self.terminal.types("kubectl delete topo --all").await?;
        self.terminal.remark("stead operator is told to end")?;
        operator.end().await?;
        let claims = self.terminal.types("kubectl get pvc -o NAME").await?;
        ensure!(claims.lines().count() == 15, "{} claims are left of 15", claims.lines().count());
        self.terminal.types("kubectl get pvc -o NAME | xargs kubectl delete").await?;
        self.stage
            .until("the volumes go with their claims", PATIENCE, || async {
                Ok(self.stage.list(SPACE, "pv", "").await?.is_empty())
            })
            .await?;
        self.terminal.types("kubectl get pv").await.map(drop)
    }
}
