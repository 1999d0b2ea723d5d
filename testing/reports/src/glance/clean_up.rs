//! The end: the control plane, then the operator, then the claims by hand, because nothing else deletes them.

use anyhow::{Result, ensure};
use stead_stage::Operator;

use super::Replay;
use crate::pods::{self, NAMESPACE, TIMEOUT};

impl Replay<'_> {
    pub(super) async fn clean_up(&mut self, operator: Operator) -> Result<()> {
        self.terminal.heading("Clean up")?;
        self.terminal.run("kubectl delete oscp openstack-control-plane").await?;
        self.stage
            .wait_until("Glance is gone with its control plane", TIMEOUT, || async {
                let glance = self.stage.list(NAMESPACE, "glances,glanceapis,statefulsets", "service=glance").await?;
                Ok(glance.is_empty() && pods::glance(&self.stage, "").await?.is_empty())
            })
            .await?;
        for topology in self.stage.list(NAMESPACE, "topologies", "").await? {
            let held = &topology["metadata"]["finalizers"];
            ensure!(held.is_null(), "Topology {} still has finalizers: {held}", topology["metadata"]["name"]);
        }
        self.terminal.run("kubectl delete topo --all").await?;
        self.terminal.remark("stead operator is stopped")?;
        operator.stop().await?;
        let claims = self.terminal.run("kubectl get pvc -o NAME").await?;
        ensure!(claims.lines().count() == 15, "{} claims are left of 15", claims.lines().count());
        self.terminal.run("kubectl get pvc -o NAME | xargs kubectl delete").await?;
        self.stage
            .wait_until("the volumes go with their claims", TIMEOUT, || async {
                Ok(self.stage.list(NAMESPACE, "pv", "").await?.is_empty())
            })
            .await?;
        self.terminal.run("kubectl get pv").await.map(drop)
    }
}
