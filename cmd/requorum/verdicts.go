package main

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
)

// trustFlags say whose verdicts count.
type trustFlags struct{ files []string }

func (t *trustFlags) addFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&t.files, "verify-key", nil, "believe verdicts only where the Ed25519 public key in this `file` signed them; may be given more than once")
}

func (t *trustFlags) parse() ([]ed25519.PublicKey, error) {
	var all []ed25519.PublicKey
	for _, path := range t.files {
		key, err := verdict.ReadVerifyKey(path)
		if err != nil {
			return nil, fmt.Errorf("--verify-key: %w", err)
		}
		all = append(all, key)
	}
	return all, nil
}

// readVerdicts reads the verdicts in a repository, as far as they are believed.
func (g *globals) readVerdicts(ctx context.Context, r *repository.Repository, trusted []ed25519.PublicKey) (verdict.Chain, error) {
	chain, err := verdict.ReadAll(ctx, r, trusted...)
	for _, note := range chain.Notes {
		g.note("%s", note)
	}
	return chain, err
}

// provedReport is the JSON form of what verdicts say of a backup.
type provedReport struct {
	// Status is passed, unchecked (proved up to Rung, but not as far as was
	// asked for), or damaged.
	Status   report.Status  `json:"status"`
	Rung     report.Rung    `json:"rung,omitempty"` // that was proved
	Finished time.Time      `json:"finished"`
	Verdict  uint64         `json:"verdict"`
	Tool     string         `json:"tool"`
	Host     string         `json:"host,omitempty"`
	Key      string         `json:"key,omitempty"` // that it says it is signed with
	Trusted  bool           `json:"trusted"`       // it is, by one that was given
	Phases   []report.Phase `json:"phases,omitempty"`
}

// proved is what verdicts say of a backup; nil where they say nothing that
// counts.
func proved(c verdict.Chain, m *snapshot.Manifest) *provedReport {
	w, ok := c.Damaged(m)
	if !ok {
		if w, ok = c.Best(m); !ok {
			return nil
		}
	}
	p := &provedReport{
		Status: w.Status, Rung: w.Reached, Finished: w.Verdict.Finished, Verdict: w.Verdict.Sequence,
		Tool: w.Verdict.Tool, Host: w.Verdict.Host, Key: w.Key, Trusted: w.Trusted, Phases: w.Phases,
	}
	if p.Status == report.Damaged {
		p.Rung = ""
	}
	return p
}

// String is the rung and the age, for a table.
func (p *provedReport) String() string {
	switch {
	case p == nil:
		return "no"
	case p.Status == report.Damaged:
		return "DAMAGED, " + humanize.Time(p.Finished)
	}
	return string(p.Rung) + ", " + humanize.Time(p.Finished)
}

// rows add what verdicts say to a table about one backup.
func (p *provedReport) rows(out *table) {
	if p == nil {
		out.row("Proved", "no: 'requorum verify' proves it")
		return
	}
	text := fmt.Sprintf("%s, by verdict %d of %s", p, p.Verdict, when(p.Finished))
	if p.Trusted {
		text += ", signed with key " + p.Key
	}
	out.row("Proved", text)
	for i, phase := range p.Phases {
		label := ""
		if i == 0 {
			label = "Measured"
		}
		out.row(label, fmt.Sprintf("%s: %s", phase.Name, took(phase.Took)))
	}
}
