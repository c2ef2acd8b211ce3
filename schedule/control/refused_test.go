package control_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agent "github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/schedule/control"
	"github.com/requorum/requorum/schedule/control/client"
	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/store/storetest"
)

// idle is a member that does not run, of programs that do nothing.
func idle(t *testing.T) config.Member {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	for name, text := range map[string]string{"member/snap/db": "database", "member/wal/0.wal": "log", "other": "no file of the member"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return config.Member{DataDir: dir, Kind: config.Command, StartTimeout: agent.Duration(300 * time.Millisecond), Command: config.CommandMember{Start: []string{"/bin/true"}, Stop: []string{"/bin/true"}}}
}

func codeOf(err error) protocol.Code {
	var r *client.RefusedError
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}

// TestPoint6Certificates: without a certificate, or with one of another CA, or one
// that has expired or is no client's, nobody is answered, and the audit says who
// it was.
func TestPoint6Certificates(t *testing.T) {
	r := newRig(t, idle(t))
	others := storetest.NewAuthority(t)
	otherCert, otherKey := others.IssueRoles(t, "mallory", time.Hour, protocol.Observe.Role())
	oldCert, oldKey := r.ca.IssueRoles(t, "yesterday", -time.Minute, protocol.Observe.Role())
	for _, c := range []struct{ name, cert, key, says, client string }{
		{"none", "", "", "certificate", ""},
		{"another CA's", otherCert, otherKey, "unknown authority", "mallory"},
		{"an expired one", oldCert, oldKey, "expired", "yesterday"},
	} {
		var err error
		if c.cert == "" {
			err = bare(t, r)
		} else {
			_, err = r.clientAs(t, client.Options{Run: run1, CA: r.ca.CA, Cert: c.cert, Key: c.key}).Member(t.Context(), false)
		}
		if err == nil || codeOf(err) != "" {
			t.Errorf("%s: %v, want a handshake that fails", c.name, err)
		}
		l := waitLine(t, r)
		if l.Event != control.Handshake || !strings.Contains(l.Why, c.says) || l.Client != c.client || l.Remote == "" {
			t.Errorf("%s: the audit says %+v", c.name, l)
		}
		if err := os.Truncate(r.cfg.AuditFile, 0); err != nil {
			t.Fatal(err)
		}
	}
	// The other way round: a host that another CA vouches for gets no request.
	c := r.clientAs(t, client.Options{Run: run1, CA: others.CA, Cert: otherCert, Key: otherKey})
	if _, err := c.Member(t.Context(), false); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("a false host: %v", err)
	}
}

// bare connects without a certificate.
func bare(t *testing.T, r *rig) error {
	t.Helper()
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(r.ca.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool.AppendCertsFromPEM(pem)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := c.Get("https://" + r.address + protocol.MemberPath)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

// waitLine waits for the first line: a client may know that it was refused before
// the audit does.
func waitLine(t *testing.T, r *rig) control.Line {
	t.Helper()
	for range 500 {
		if lines := r.audit(t); len(lines) > 0 {
			return lines[0]
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("nothing was audited")
	return control.Line{}
}

// TestHandshakesDoNotFillTheDisk: strangers get a bounded number of lines.
func TestHandshakesDoNotFillTheDisk(t *testing.T) {
	r := newRig(t, idle(t))
	for range 60 {
		if bare(t, r) == nil {
			t.Fatal("let in")
		}
	}
	time.Sleep(200 * time.Millisecond)
	if n := len(r.audit(t)); n != 30 {
		t.Errorf("%d lines for 60 strangers", n)
	}
}

// TestPoint6RolePerVerb: for each verb its role is needed, and no other helps.
func TestPoint6RolePerVerb(t *testing.T) {
	r := newRig(t, idle(t))
	calls := map[protocol.Verb]func(*client.Client) error{
		protocol.Observe:  func(c *client.Client) error { _, err := c.Member(t.Context(), false); return err },
		protocol.Stop:     func(c *client.Client) error { _, err := c.Stop(t.Context()); return err },
		protocol.Start:    func(c *client.Client) error { _, err := c.Start(t.Context()); return err },
		protocol.SetAside: func(c *client.Client) error { _, err := c.SetAside(t.Context()); return err },
		protocol.Undo:     func(c *client.Client) error { _, err := c.Undo(t.Context()); return err },
		protocol.Rebuild:  func(c *client.Client) error { _, err := c.Rebuild(t.Context(), nil, nil); return err },
		protocol.Quiesce:  func(c *client.Client) error { _, err := c.Quiesce(t.Context()); return err },
		protocol.Resume:   func(c *client.Client) error { _, err := c.Resume(t.Context()); return err },
		protocol.Flags: func(c *client.Client) error {
			_, err := c.Flags(t.Context(), wantedFlags("http://127.0.0.1:1"))
			return err
		},
		protocol.Copy: func(c *client.Client) error { _, err := c.Files(t.Context(), protocol.Current); return err },
	}
	for _, verb := range protocol.Verbs() {
		// An action needs the clock first, so all have the role to observe.
		var without []protocol.Verb
		for _, v := range protocol.Verbs() {
			if v != verb {
				without = append(without, v)
			}
		}
		err := calls[verb](r.client(t, run1, without...))
		if codeOf(err) != protocol.Forbidden {
			t.Errorf("%s without its role: %v", verb, err)
		}
		l := r.last(t, control.Refused, protocol.Forbidden)
		if l.Verb != verb || l.Client != "operator" || len(l.Roles) != len(without) || !strings.Contains(l.Why, verb.Role()) {
			t.Errorf("%s: the audit says %+v", verb, l)
		}
		if err := calls[verb](r.client(t, run1, verb, protocol.Observe)); codeOf(err) == protocol.Forbidden {
			t.Errorf("%s with its role: %v", verb, err)
		}
	}
}

// raw sends a request as it is, with all roles.
func (r *rig) raw(t *testing.T, method, path, body string) (int, protocol.Refusal) {
	t.Helper()
	var units []string
	for _, v := range protocol.Verbs() {
		units = append(units, v.Role())
	}
	cert, key := r.ca.IssueRoles(t, "operator", time.Hour, units...)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       20 * time.Second,
	}
	host, opaque, query := r.address, path, ""
	if p, q, ok := strings.Cut(path, "?"); ok {
		opaque, query = p, q
	}
	req := &http.Request{Method: method, URL: &url.URL{Scheme: "https", Host: host, Opaque: "//" + host + opaque, RawQuery: query}, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}
	resp, err := c.Do(req.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var why protocol.Refusal
	_ = json.Unmarshal(data, &why)
	if resp.StatusCode == http.StatusOK && bytes.Contains(data, []byte("root:")) {
		t.Errorf("%s %s gave a file of the host's", method, path)
	}
	return resp.StatusCode, why
}

// action is the body of a request that would be let through once.
func (r *rig) action(t *testing.T, change func(*protocol.Action)) string {
	t.Helper()
	m, err := r.client(t, run1).Member(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	a := protocol.Action{Header: protocol.Header{Member: "m1", Run: run1, Nonce: protocol.NewNonce(), Session: m.Clock.Session, At: m.Clock.Uptime}}
	if change != nil {
		change(&a)
	}
	data, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestPoint6Replay: a request counts once, in its time and in the session it was
// made for; each repetition is refused and audited.
func TestPoint6Replay(t *testing.T) {
	r := newRig(t, idle(t))
	body := r.action(t, nil)
	if code, why := r.raw(t, "POST", protocol.StopPath, body); code != 200 {
		t.Fatal(code, why)
	}
	r.last(t, control.Done, "")
	for _, path := range []string{protocol.StopPath, protocol.SetAsidePath, protocol.StartPath} {
		if code, why := r.raw(t, "POST", path, body); code != 409 || why.Code != protocol.Replayed {
			t.Errorf("again, to %s: %d %+v", path, code, why)
		}
		if l := r.last(t, control.Refused, protocol.Replayed); l.Nonce == "" || l.Path != path || l.Run != run1 {
			t.Errorf("the audit says %+v", l)
		}
	}
	for name, c := range map[string]struct {
		change func(*protocol.Action)
		code   protocol.Code
	}{
		"an old one":       {func(a *protocol.Action) { a.At -= protocol.Window + time.Second }, protocol.Stale},
		"one kept for":     {func(a *protocol.Action) { a.At += protocol.Window + time.Minute }, protocol.Stale},
		"another session":  {func(a *protocol.Action) { a.Session = protocol.NewNonce() }, protocol.Stale},
		"no nonce":         {func(a *protocol.Action) { a.Nonce = "" }, protocol.BadRequest},
		"no run":           {func(a *protocol.Action) { a.Run = "" }, protocol.BadRequest},
		"another member's": {func(a *protocol.Action) { a.Member = "m2" }, protocol.OtherMember},
		"another run's":    {func(a *protocol.Action) { a.Run = run2 }, protocol.Held},
		"with a plan":      {func(a *protocol.Action) { a.Plan = json.RawMessage("{}") }, protocol.BadRequest},
	} {
		if _, why := r.raw(t, "POST", protocol.StopPath, r.action(t, c.change)); why.Code != c.code {
			t.Errorf("%s: %+v, want %s", name, why, c.code)
		}
		r.last(t, control.Refused, c.code)
	}
	// The process was started anew: what it knew is gone, and so is the session.
	body = r.action(t, nil)
	if code, why := r.raw(t, "POST", protocol.StopPath, body); code != 200 {
		t.Fatal(code, why)
	}
	r.restart(t)
	if _, why := r.raw(t, "POST", protocol.StopPath, body); why.Code != protocol.Stale {
		t.Errorf("after a restart: %+v", why)
	}
	// A client of ours goes on all the same: it learns of the new session.
	c := r.client(t, run1)
	if _, err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.restart(t)
	c.Close()
	if _, err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	lines := r.audit(t)
	if n := len(lines); n < 4 || lines[n-1].Event != control.Done || lines[n-4].Code != protocol.Stale || lines[n-4].Nonce == lines[n-1].Nonce {
		t.Errorf("the audit ends with %+v", lines[max(0, n-4):])
	}
}

// TestPoint6PathOutside: nothing outside the configured directories can be named,
// in any way, and each attempt is audited.
func TestPoint6PathOutside(t *testing.T) {
	m := idle(t)
	if err := os.Symlink("/etc/passwd", filepath.Join(m.DataDir, "member", "snap", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(m.DataDir, "member", "folder")); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, m)
	for _, file := range []string{
		"../../../../etc/passwd", "member/../../../../etc/passwd", "/etc/passwd", "member//etc/passwd", "member/snap/link", "member/folder/passwd",
		"other", "member", "member/", "member/snap", "wal/0.wal", "member/..%2fother", "..\\db", "member/snap/./db", "\x00",
	} {
		code, why := r.raw(t, "GET", protocol.DataPath+"?file="+url.QueryEscape(file), "")
		if code != 400 && code != 404 || why.Code == "" {
			t.Errorf("file %q: %d %+v", file, code, why)
		}
		if l := r.last(t, control.Refused, why.Code); l.File != file {
			t.Errorf("file %q: the audit says %+v", file, l)
		}
	}
	for _, path := range []string{"/v1/../etc/passwd", "/v1/data/../../etc/passwd", "/v1/member/", "//v1/member", "/v1/data/member/snap/db", "/", "/v1/data?file=member/snap/db&dir=/etc", "/v1/data?file=a&file=b", "/v1/data?of=/etc", "/v1/data?of=set-aside&run=../../../etc"} {
		code, why := r.raw(t, "GET", path, "")
		if code != 400 && code != 404 {
			t.Errorf("%s: %d", path, code)
		}
		r.last(t, control.Refused, why.Code)
	}
	// No action has a place for a path.
	for _, field := range []string{`"data_dir": "/etc"`, `"path": "/etc"`, `"member": "../etc"`} {
		body := strings.TrimSuffix(r.action(t, nil), "}") + "," + field + "}"
		if code, why := r.raw(t, "POST", protocol.SetAsidePath, body); why.Code != protocol.BadRequest && why.Code != protocol.OtherMember {
			t.Errorf("%s: %d %+v", field, code, why)
		}
		if r.audit(t)[len(r.audit(t))-1].Event != control.Refused {
			t.Errorf("%s was not audited as refused", field)
		}
	}
	if _, err := os.Stat(filepath.Join(m.DataDir, "member", "snap", "db")); err != nil {
		t.Error(err)
	}
	// A list that a link would make incomplete is refused too.
	if _, err := r.client(t, run1).Files(t.Context(), protocol.Current); codeOf(err) != protocol.Failed || !strings.Contains(err.Error(), "link") {
		t.Errorf("the list: %v", err)
	}
}

// TestPromise4NoAuditNoAction: what cannot be audited is not done.
func TestPromise4NoAuditNoAction(t *testing.T) {
	m := idle(t)
	r := newRig(t, m)
	c := r.client(t, run1)
	if _, err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(r.cfg.AuditFile), os.Mkdir(r.cfg.AuditFile, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetAside(t.Context()); codeOf(err) != protocol.Failed {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(m.DataDir, "member", "snap", "db")); err != nil {
		t.Errorf("it was done: %v", err)
	}
	r.end()
	if err := errors.Join(os.Remove(r.cfg.AuditFile), os.WriteFile(r.cfg.AuditFile, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := control.Listen(t.Context(), r.cfg, control.Hooks{}, nil); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("an audit file that all can read: %v", err)
	}
}
