package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
)

// The tables stand between these lines; the prose around them is people's.
const (
	beginMark = "<!-- bench: begin. Written by make bench; do not edit. -->"
	endMark   = "<!-- bench: end -->"
)

// report is everything that was measured.
type report struct {
	machine  machine
	versions string
	loaded   loaded // what backups and restores were of
	backups  []outcome
	restores []outcome // none when left out
	sizes    []sized   // the smallest first
	replays  []replayed
	archives []archived
	verified []verified
	drilled  []drilled

	beside     []beside // agents beside a cluster; none without them first
	besideSize loaded
	agentPeaks []agentPeak

	recovered []recovered
	crashSize loaded
}

func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Machine: %s.\nVersions: %s.\n", r.machine, r.versions)
	if r.loaded.Keys > 0 {
		fmt.Fprintf(&b, "Database: %s on disk, %d keys at revision %d, %d leases.\n",
			mebibytes(r.loaded.bytes), r.loaded.Keys, r.loaded.Revision, r.loaded.Leases)
	}
	if len(r.backups) > 0 {
		r.writeSnapshots(&b)
	}
	if len(r.sizes) > 0 {
		r.writeSizes(&b)
	}
	r.writeReplays(&b)
	if len(r.archives) > 0 {
		r.writeArchives(&b)
	}
	r.writeVerified(&b)
	if len(r.drilled) > 0 {
		r.writeDrilled(&b)
	}
	r.writeAgents(&b)
	if len(r.recovered) > 0 {
		r.writeRecovered(&b)
	}
	return b.String()
}

func (r *report) writeSnapshots(b *strings.Builder) {
	section(b, "Backup of one member", "etcdctl", "stored", r.backups)
	if len(r.restores) > 0 {
		section(b, "Restore of three members", "etcdutl thrice", "written", r.restores)
	}
}

// section is one contest; the first contestant is the rival.
func section(b *strings.Builder, title, rival, bytes string, outcomes []outcome) {
	fmt.Fprintf(b, "\n### %s\n\n| | rounds | wall | times as fast as %s | CPU | peak memory | without mapped files | %s |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
		title, rival, bytes)
	for i := range outcomes {
		o := &outcomes[i]
		fmt.Fprintf(b, "| %s | %d | %s | %s | %.1f s | %s | %s | %s |\n", o.name, len(o.usages), seconds(o.wall()),
			times(o.fasterThan(&outcomes[0])), o.cpu().median.Seconds(), mebibytes(o.rss()), mebibytes(o.anon()), mebibytes(o.stored))
	}
}

// writeInto puts the tables between the marks of a document. When only a part
// was measured, the others' tables stay.
func (r *report) writeInto(path string, partly bool) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := replaceBetween(old, r.markdown(), partly)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, text, 0o644) //nolint:gosec // a public document
}

func replaceBetween(old []byte, tables string, partly bool) ([]byte, error) {
	head, rest, begins := bytes.Cut(old, []byte(beginMark))
	present, tail, ends := bytes.Cut(rest, []byte(endMark))
	if !begins || !ends {
		return nil, errors.New("the lines that begin and end the tables are missing: " + beginMark + " and " + endMark)
	}
	if partly {
		tables = merge(string(present), tables)
	}
	return fmt.Appendf(nil, "%s%s\n\n%s\n%s%s", head, beginMark, tables, endMark, tail), nil
}
