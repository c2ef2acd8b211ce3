package member

import (
	"context"

	"github.com/requorum/requorum/schedule/control/config"
)

// distribution is a member inside a Kubernetes distribution that keeps its own
// databases: it can be looked at, and not be controlled.
type distribution struct {
	evidence
	kind config.Kind
}

// snapshotStep is where requorum comes in.
const snapshotStep = "on one server: requorum restore --repo URL --to-snapshot /root/requorum.db"

func (d *distribution) manual() *ManualError {
	var steps []string
	switch d.kind {
	case config.K3s:
		steps = []string{
			"on every server: systemctl stop k3s, then k3s-killall.sh",
			snapshotStep,
			"there: k3s server --cluster-reset --cluster-reset-restore-path=/root/requorum.db --token=TOKEN, until it says that it may be restarted",
			"there: systemctl start k3s",
			"on each other server: mv /var/lib/rancher/k3s/server/db /var/lib/rancher/k3s/server/db.old, then systemctl start k3s",
		}
	case config.RKE2:
		steps = []string{
			"on every server: systemctl stop rke2-server, then rke2-killall.sh",
			snapshotStep,
			"there: rke2 server --cluster-reset --cluster-reset-restore-path=/root/requorum.db, until it says that it may be restarted",
			"there: systemctl start rke2-server",
			"on each other server: mv /var/lib/rancher/rke2/server/db /var/lib/rancher/rke2/server/db.old, then systemctl start rke2-server",
		}
	default: // Talos
		steps = []string{
			"requorum restore --repo URL --to-snapshot requorum.db, on the machine with talosctl",
			"for each control plane node: talosctl -n NODE service etcd, until none runs",
			"for each control plane node: talosctl -n NODE reset --graceful=false --reboot --system-labels-to-wipe=EPHEMERAL (it wipes: save /var/lib/etcd first with talosctl -n NODE cp)",
			"for one node, once all show etcd in state Preparing: talosctl -n NODE bootstrap --recover-from=requorum.db",
		}
	}
	return &ManualError{Kind: d.kind, Steps: steps}
}

// Check has nothing to try: this kind is not controlled.
func (d *distribution) Check(context.Context) error { return nil }

// Stopped looks at the locks and the process table.
func (d *distribution) Stopped(context.Context) (*Proof, error) { return d.stopped() }

// Stop gives the proof where the member is stopped already, and else fails with a *ManualError.
func (d *distribution) Stop(context.Context) (*Proof, error) {
	if proof, err := d.stopped(); err == nil {
		return proof, nil
	}
	return nil, d.manual()
}

// Start fails with a *ManualError.
func (d *distribution) Start(context.Context) error { return d.manual() }
