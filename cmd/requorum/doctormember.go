package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay/walfile"
)

// examineCluster looks at endpoints, quorum, versions and rights.
func (e *examination) examineCluster(ctx context.Context, client *client.Client) {
	survey, err := client.Survey(ctx)
	if err != nil {
		e.failed("endpoints", err, "name the members' client URLs with "+e.orKey("--endpoints", "etcd.endpoints")+", and what TLS and users need")
		return
	}
	e.survey = &survey
	reached := 0
	for _, m := range survey.Members {
		if m.Err != nil {
			e.add(checkWarn, "endpoint "+m.Endpoint, m.Err.Error(), "backups go on with the others; check this one")
			continue
		}
		reached++
		e.examineVersion(m)
		for _, problem := range m.Errors {
			e.add(checkWarn, m.String(), problem, "")
		}
	}
	e.add(checkOK, "endpoints", fmt.Sprintf("%d of %d lead to members of cluster %016x", reached, len(survey.Members), survey.ClusterID), "")
	e.examineMembership(survey)
	barrier, err := client.Barrier(ctx, survey)
	if err != nil {
		e.failed("quorum", err, "a backup needs a quorum; without one, restore from a member's data directory or the repository")
		return
	}
	e.add(checkOK, "quorum", fmt.Sprintf("confirmed raft index %d, revision %d", barrier.Index, barrier.Revision), "")
	if e.agent == nil || e.agent.Jobs.Full.Runs() {
		e.examineRights(ctx, client, survey, barrier)
	}
}

// oldestMinor and newestMinor bound the versions 3.x that are read.
const (
	oldestMinor = 4
	newestMinor = 7
)

func (e *examination) examineVersion(m client.MemberStatus) {
	check := m.String()
	parts := strings.Split(m.Version, ".")
	minor := -1
	if len(parts) >= 2 && parts[0] == "3" {
		if n, err := strconv.Atoi(parts[1]); err == nil {
			minor = n
		}
	}
	switch {
	case minor < oldestMinor:
		e.add(checkFail, check, fmt.Sprintf("etcd %s", m.Version), fmt.Sprintf("etcd 3.%d to 3.%d can be backed up: upgrade it first", oldestMinor, newestMinor))
	case minor == oldestMinor:
		e.add(checkWarn, check, fmt.Sprintf("etcd %s, database %s", m.Version, size(m.DBSize)), "full snapshots of it can be stored, restored and verified: to archive its log, or to recover its members, upgrade it")
	case minor > newestMinor:
		e.add(checkFail, check, fmt.Sprintf("etcd %s", m.Version), fmt.Sprintf("this version of requorum knows etcd up to 3.%d: use a newer one", newestMinor))
	default:
		e.add(checkOK, check, fmt.Sprintf("etcd %s, database %s", m.Version, size(m.DBSize)), "")
	}
}

// examineMembership finds members that no endpoint leads to.
func (e *examination) examineMembership(survey client.Survey) {
	if survey.MembershipErr != nil {
		e.add(checkWarn, "members", survey.MembershipErr.Error(), "name an endpoint of a voting member")
		return
	}
	var missing []string
	for _, info := range survey.Membership {
		found := false
		for _, m := range survey.Members {
			found = found || m.Err == nil && m.MemberID == info.ID
		}
		if !found {
			missing = append(missing, fmt.Sprintf("%s (%016x)", cmp.Or(info.Name, "none"), info.ID))
		}
	}
	if len(missing) > 0 {
		e.add(checkWarn, "members", "no endpoint leads to "+strings.Join(missing, ", "), "name all members' client URLs, so that a backup goes on without one")
	}
}

// rightsTimeout bounds the beginning of a snapshot stream.
const rightsTimeout = 10 * time.Second

// examineRights begins a snapshot of the member that a backup would read, and
// ends it at once: only that reports whether it is allowed.
func (e *examination) examineRights(ctx context.Context, client *client.Client, survey client.Survey, barrier client.Barrier) {
	candidates := client.Candidates(survey, barrier)
	if len(candidates) == 0 {
		e.add(checkFail, "snapshot", "no member can be read", "bring up a member that has caught up, and name its client URL with "+e.orKey("--endpoints", "etcd.endpoints"))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	stream, err := client.Stream(ctx, candidates[0])
	if err != nil {
		e.failed("snapshot", err, "with authentication on, etcd gives snapshots to users with the root role only; archiving alone does with any user")
		return
	}
	if err := stream.Close(); err != nil {
		e.failed("snapshot", err, "see whether the connection to the member holds, and try again")
		return
	}
	e.add(checkOK, "snapshot", candidates[0].String()+" gives one", "")
}

// examineMember looks at a member's files, without changing or locking any.
func (e *examination) examineMember() {
	o := e.options
	wal := cmp.Or(o.walDir, filepath.Join(o.dataDir, "member", "wal"))
	log, err := walfile.Open(wal)
	if err != nil {
		next := e.orKey("give the member's data directory, and its --wal-dir where it has one", "write the member's data directory to member.data-dir, and its --wal-dir to member.wal-dir where it has one")
		if errors.Is(err, fs.ErrPermission) {
			next = "let " + e.orKey("the archiver's", "the agent's") + " user read it: docs/archive.md has the ways"
		}
		e.failed("log "+wal, err, next)
	} else {
		e.examineIdentity(wal, log.Identity())
	}
	if o.dataDir != "" {
		e.examineDatabase(filepath.Join(o.dataDir, "member", "snap", "db"))
	}
}

// examineIdentity holds the log against those who answer.
func (e *examination) examineIdentity(wal string, id walfile.Identity) {
	check := "log " + wal
	whose := fmt.Sprintf("of member %s of cluster %s", snapshot.ID(id.MemberID), snapshot.ID(id.ClusterID))
	switch {
	case e.survey == nil:
		e.add(checkWarn, check, "is "+whose+"; nobody answers to compare with", "")
		return
	case e.survey.ClusterID != id.ClusterID:
		e.add(checkFail, check, fmt.Sprintf("is %s, and the endpoints are of cluster %s", whose, snapshot.ID(e.survey.ClusterID)), "give the data directory and the endpoints of one cluster")
		return
	}
	for _, m := range e.survey.Members {
		if m.Err == nil && m.MemberID == id.MemberID {
			e.add(checkOK, check, "is "+whose+", which answers at "+m.Endpoint, "")
			return
		}
	}
	e.add(checkFail, check, "is "+whose+", which no endpoint leads to", "name the client URL of the member itself, no load balancer's")
}

// examineDatabase looks whether the database can be read.
func (e *examination) examineDatabase(path string) {
	f, err := safedir.Open(path) // no pipe that never ends, and no device
	if err != nil {
		e.add(checkWarn, "database "+path, err.Error(), "archiving needs the log alone; a restore from this data directory needs it")
		return
	}
	if _, err := f.ReadAt(make([]byte, 1), 0); err != nil {
		e.failed("database "+path, err, "look at the disk that it is on, and that it is the member's data directory")
	} else {
		e.add(checkOK, "database "+path, "can be read", "")
	}
	f.Close() //nolint:errcheck // it was only read
}

// examineSpool looks whether the spool has the room that it may take.
func (e *examination) examineSpool(all []sinks.Sink, limit int64) {
	dir := e.options.spoolDir
	if dir == "" {
		if len(all) != 1 {
			return // it depends on the repository
		}
		var err error
		if dir, err = defaultSpoolDir(e.getenv, e.options.dataDir+"\n"+e.options.walDir+"\n"+all[0].String()); err != nil {
			e.failed("spool", err, "name a folder with "+e.orKey("--spool-dir", "archive.spool-dir"))
			return
		}
	}
	free, known, err := safedir.Free(dir)
	switch {
	case err != nil:
		e.failed("spool "+dir, err, "give the folder to "+e.orKey("the archiver's", "the agent's")+" user, or name another one with "+e.orKey("--spool-dir", "archive.spool-dir"))
	case !known:
		e.add(checkOK, "spool "+dir, "its free space is not known here", "")
	case free < limit:
		e.add(checkWarn, "spool "+dir, fmt.Sprintf("%s free, less than its bound of %s", size(free), size(limit)), e.orKey("a smaller --spool-limit, or a --spool-dir with more room", "a smaller archive.spool-limit, or an archive.spool-dir with more room"))
	default:
		e.add(checkOK, "spool "+dir, fmt.Sprintf("%s free for at most %s", size(free), size(limit)), "")
	}
}

// existing is a folder, or the nearest one above it that there is.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// examineHost looks at what the agent takes of this host: folders, attachments, a
// port.
func (e *examination) examineHost(ctx context.Context) {
	if len(e.readingJobs()) > 0 {
		e.examineFolder("resources.scratch-dir", e.agent.Resources.ScratchDir, false)
	}
	if e.agent.Archiving() {
		e.examineFolder("archive.spool-dir", e.agent.Archive.SpoolDir, true)
	}
	for _, c := range e.agent.Attachments {
		e.examineAttachment(c)
	}
	e.examinePort(ctx)
}

// examineFolder writes a scratch file into a folder, or where the agent would make
// it into the nearest one above.
func (e *examination) examineFolder(key, dir string, made bool) {
	there := dir
	if made {
		there = existing(dir)
	}
	f, err := os.CreateTemp(there, ".requorum-doctor-*")
	if err != nil {
		e.failed(key, err, "make the folder and give it to the agent's user, or write another one to "+key)
		return
	}
	_, err = f.WriteString("requorum doctor\n")
	if err := errors.Join(err, f.Close(), os.Remove(f.Name())); err != nil {
		e.failed(key, err, "write a folder with room to "+key)
		return
	}
	e.add(checkOK, key, dir+" can be written", "")
}

// examineAttachment opens each file of an attachment.
func (e *examination) examineAttachment(c config.Attachment) {
	check, files := "attachment "+c.Name, 0
	err := filepath.WalkDir(c.Path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if !entry.Type().IsRegular() && entry.Type() != fs.ModeSymlink {
			return nil // it is left out
		}
		f, err := safedir.Open(path)
		if err != nil {
			return err
		}
		files++
		return f.Close()
	})
	switch {
	case err != nil:
		e.failed(check, err, "mend the path in attachments, or let the agent's user read it")
	case files == 0:
		e.add(checkFail, check, c.Path+" holds no file", "mend the path in attachments, or remove it")
	default:
		e.add(checkOK, check, fmt.Sprintf("%d files can be read", files), "")
	}
}

// examinePort listens for a moment where the agent would.
func (e *examination) examinePort(ctx context.Context) {
	check, address := "listen.address", e.agent.Listen.Address
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	switch {
	case err == nil:
		if err := l.Close(); err != nil {
			e.failed(check, err, "try again; the port could be had, and not given back")
			return
		}
		e.add(checkOK, check, address+" is free", "")
	case errors.Is(err, syscall.EADDRINUSE) && e.isAgent(ctx, address):
		e.add(checkOK, check, address+" is this agent's, which is running", "")
	case errors.Is(err, syscall.EADDRINUSE):
		e.failed(check, err, "end what listens there (ss -ltnp shows it), or write another port to listen.address")
	default:
		e.failed(check, err, "write an address of this host to listen.address")
	}
}

// isAgent reports whether the agent of this configuration listens there already: it
// gives its name, or with TLS, where the answer could need a client certificate,
// shows its certificate.
func (e *examination) isAgent(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if e.agent.Listen.Cert != "" {
		return e.showsCertificate(ctx, address)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/v1/status", nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	var status struct {
		Agent string `json:"agent"`
	}
	return json.NewDecoder(io.LimitReader(answer.Body, 16<<20)).Decode(&status) == nil && status.Agent == e.agent.Name
}

// showsCertificate reports whether a port has the certificate of listen.cert.
func (e *examination) showsCertificate(ctx context.Context, address string) bool {
	ours, err := tls.LoadX509KeyPair(e.agent.Listen.Cert, e.agent.Listen.Key)
	if err != nil {
		return false
	}
	same := false
	dialer := tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true, // it is compared, byte by byte
		VerifyConnection: func(s tls.ConnectionState) error {
			same = bytes.Equal(s.PeerCertificates[0].Raw, ours.Certificate[0])
			return nil
		},
	}}
	if conn, err := dialer.DialContext(ctx, "tcp", address); err == nil {
		conn.Close() //nolint:errcheck // nothing was sent
	}
	return same
}

// examineHeartbeat connects to where is pinged. Nothing is sent: a ping would say
// that all is well. The URL is a secret, its host is not.
func (e *examination) examineHeartbeat(ctx context.Context) {
	raw, err := e.agent.HeartbeatURL()
	if err != nil || raw == "" {
		return // reported already, or not wanted
	}
	target, err := url.Parse(raw)
	if err != nil {
		return // it was parsed before
	}
	port := target.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[target.Scheme]
	}
	address := net.JoinHostPort(target.Hostname(), port)
	if err := reach(ctx, address); err != nil {
		e.failed("heartbeat", err, "mend heartbeat.url or heartbeat.url-file, or let this host connect there")
		return
	}
	e.add(checkOK, "heartbeat", address+" can be reached; nothing was sent", "")
}
