package restore

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/requorum/requorum/snapshot"
)

// PlanFormat is the number of the plan's JSON format. A reader refuses a number
// that it does not know.
const PlanFormat = 1

// Plan is everything that was decided about a restore: pure data, the same on
// every host. Its JSON form is stable, and ends with its own checksum: see
// MarshalJSON.
type Plan struct {
	Format    int       `json:"format"`
	ID        string    `json:"id"` // random, names this plan in files and messages
	CreatedAt time.Time `json:"created_at"`
	Source    Source    `json:"source"`

	ClusterToken string      `json:"cluster_token"`
	ClusterID    snapshot.ID `json:"cluster_id"`
	Members      []Member    `json:"members"` // by name

	// SetAside allows every host to move an existing directory's content aside,
	// and Owner is for all of them; ExecOptions have both for one host.
	SetAside bool   `json:"set_aside"`
	Owner    *Owner `json:"owner,omitempty"`
	Engine   string `json:"engine"`

	// Bump is nil when the revision stays as it is.
	Bump *Bump `json:"bump,omitempty"`
	// ClearAlarms are the alarms of the image that the result will not have.
	ClearAlarms []snapshot.Alarm `json:"clear_alarms,omitempty"`

	// OldestTarget is the oldest etcd, such as "3.6", that can start the result;
	// TargetVersion the one that was asked for.
	OldestTarget  string `json:"oldest_target"`
	TargetVersion string `json:"target_version,omitempty"`

	// BytesDB and BytesWAL are what one member takes on disk while it is built.
	BytesDB  int64 `json:"bytes_db"`
	BytesWAL int64 `json:"bytes_wal"`

	// Notes are sentences for the user.
	Notes []string `json:"notes,omitempty"`
}

// Member is one member of the new cluster.
type Member struct {
	Name     string      `json:"name"`
	ID       snapshot.ID `json:"id"`
	PeerURLs []string    `json:"peer_urls"`
	Learner  bool        `json:"learner,omitempty"`
	DataDir  string      `json:"data_dir"`
	WALDir   string      `json:"wal_dir,omitempty"` // empty: inside the data directory
}

// NewPlan decides everything that a restore needs, and touches no directory.
func NewPlan(ctx context.Context, req Request) (*Plan, error) {
	if err := req.check(); err != nil {
		return nil, &RequestError{err}
	}
	token := req.ClusterToken
	if token == "" {
		token = "requorum-" + randomHex(8)
	}
	members, clusterID, err := planMembers(req, token)
	if err != nil {
		return nil, &RequestError{err}
	}
	facts, err := req.Image.Facts(ctx)
	if err != nil {
		return nil, fmt.Errorf("restore: look into %s: %w", req.Image.Name(), err)
	}
	p := &Plan{
		Format:        PlanFormat,
		ID:            randomHex(8),
		CreatedAt:     time.Now().UTC().Truncate(time.Second),
		Source:        sourceOf(req.Image, req.Repository, req.BackupID, facts),
		ClusterToken:  token,
		ClusterID:     clusterID,
		Members:       members,
		SetAside:      req.SetAside,
		Owner:         req.Owner,
		Engine:        req.Engine,
		ClearAlarms:   facts.Alarms,
		TargetVersion: req.TargetVersion,
		BytesWAL:      walBytes(),
	}
	p.Source.Target = req.Target
	if _, err := p.local(req.Only); err != nil {
		return nil, err
	}
	if p.Engine == "" {
		p.Engine = EngineRequorum
	}
	if p.OldestTarget, err = planTarget(req.TargetVersion, facts); err != nil {
		return nil, err
	}
	var notes []string
	if p.Bump, notes, err = planBump(req.Bump, facts, req.HighestKnownRevision); err != nil {
		return nil, err
	}
	p.BytesDB = p.Source.Size + editBytes
	p.Notes = append(append(planNotes(p), req.Notes...), notes...)
	if p.Engine == EngineEtcdutl {
		if err := etcdutlCan(p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func planMembers(req Request, token string) ([]Member, snapshot.ID, error) {
	cluster, err := newCluster(req.InitialCluster, token, req.Learners)
	if err != nil {
		return nil, 0, err
	}
	var members []Member
	for _, m := range cluster.Members() {
		dir, err := expand(req.DataDir, m.Name)
		if err != nil {
			return nil, 0, err
		}
		wal := ""
		if req.WALDir != "" {
			if wal, err = expand(req.WALDir, m.Name); err != nil {
				return nil, 0, err
			}
		}
		members = append(members, Member{
			Name: m.Name, ID: snapshot.ID(m.ID), PeerURLs: m.PeerURLs, Learner: m.IsLearner, DataDir: dir, WALDir: wal,
		})
	}
	sortByName(members)
	return members, snapshot.ID(cluster.ID()), nil
}

// expand puts a member's name into a path. A name is a path's part then, so it
// must be a plain one.
func expand(template, name string) (string, error) {
	if strings.Contains(template, "{name}") && (name == "." || name == ".." || strings.ContainsAny(name, "/\x00")) {
		return "", fmt.Errorf("restore: the member name %q cannot be part of the path %s", name, template)
	}
	path, err := filepath.Abs(strings.ReplaceAll(template, "{name}", name))
	if err != nil {
		return "", fmt.Errorf("restore: path %s of member %s: %w", template, name, err)
	}
	return path, nil
}

// InitialCluster is the value for etcd's --initial-cluster flag.
func (p *Plan) InitialCluster() string {
	var parts []string
	for _, m := range p.Members {
		for _, u := range m.PeerURLs {
			parts = append(parts, m.Name+"="+u)
		}
	}
	return strings.Join(parts, ",")
}

func (p *Plan) member(name string) *Member {
	for i := range p.Members {
		if p.Members[i].Name == name {
			return &p.Members[i]
		}
	}
	return nil
}

// local are the members that this host builds: all, or the one named.
func (p *Plan) local(only string) ([]Member, error) {
	if only == "" {
		return p.Members, nil
	}
	m := p.member(only)
	if m == nil {
		return nil, badRequest("restore: %s is no member of the planned cluster %s: give --name with one of its names", only, p.InitialCluster())
	}
	return []Member{*m}, nil
}

// NeedsOnly tells whether members share a directory, so that each host builds
// one of them, which ExecOptions.Only names.
func (p *Plan) NeedsOnly() bool { return p.sharedDir() != "" }

// sharedDir is a directory that two members have in common; empty when none is.
func (p *Plan) sharedDir() string {
	data, wal := map[string]bool{}, map[string]bool{}
	for _, m := range p.Members {
		if data[m.DataDir] {
			return m.DataDir
		}
		if wal[m.WALDir] {
			return m.WALDir
		}
		data[m.DataDir], wal[m.WALDir] = true, m.WALDir != ""
	}
	return ""
}

// onHost is the plan as it is carried out with a host's own options.
func (p *Plan) onHost(opts ExecOptions) *Plan {
	c := *p
	c.SetAside = p.SetAside || opts.SetAside
	if opts.Owner != nil {
		c.Owner = opts.Owner
	}
	return &c
}
