package recovertest

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/schedule/control"
	"github.com/requorum/requorum/schedule/control/client"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/store/storetest"
)

// TestPoint6Refused is point 6 of what recover must show, with the binary and from
// another host: a certificate of another CA, none, one without the role, a
// replayed request and a path outside are refused, and each is a line in the
// host's audit file.
func TestPoint6Refused(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Version: "3.7"})
	h := s.Host(0)

	other := storetest.NewAuthority(t)
	cert, key := other.IssueRoles(t, "stranger", time.Hour, protocol.Observe.Role())
	c, err := client.New(client.Options{Address: h.Control, Member: h.Name, Run: "recovery-1", CA: s.authority.CA, Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Member(t.Context(), false); err == nil {
		t.Error("a certificate of another CA was let in")
	}
	h.audited(t, "another CA", func(l control.Line) bool {
		return l.Event == control.Handshake && strings.Contains(l.Why, "unknown authority")
	})

	nobody := &http.Client{Transport: &http.Transport{TLSClientConfig: s.tls(t)}, Timeout: 5 * time.Second}
	if resp, err := nobody.Get("https://" + h.Control + protocol.MemberPath); err == nil {
		resp.Body.Close()
		t.Errorf("without a certificate: %s", resp.Status)
	}
	h.audited(t, "no certificate", func(l control.Line) bool {
		return l.Event == control.Handshake && strings.Contains(l.Why, "provide a certificate")
	})

	if _, err := h.ControlClient(t, "recovery-1", protocol.Observe.Role()).Stop(t.Context()); err == nil {
		t.Error("a certificate without the role stopped a member")
	}
	h.audited(t, "no role", func(l control.Line) bool { return l.Event == control.Refused && l.Code == protocol.Forbidden })

	// A whole request, once and again.
	config := s.tls(t)
	_, cert, key = s.Credentials(t, "operator")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates = []tls.Certificate{pair}
	operator := &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: 30 * time.Second}
	var m protocol.Member
	if _, body := ask(t, operator, http.MethodGet, "https://"+h.Control+protocol.MemberPath, nil); json.Unmarshal(body, &m) != nil {
		t.Fatalf("the state: %s", body)
	}
	stop, err := json.Marshal(protocol.Action{Header: protocol.Header{
		Member: h.Name, Run: "recovery-1", Nonce: protocol.NewNonce(), Session: m.Clock.Session, At: m.Clock.Uptime,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if code, body := ask(t, operator, http.MethodPost, "https://"+h.Control+protocol.StopPath, stop); code != http.StatusOK {
		t.Fatalf("%d: %s", code, body)
	}
	h.StartEtcd(t)
	s.WaitReady(t, s.Members()...)
	if code, body := ask(t, operator, http.MethodPost, "https://"+h.Control+protocol.StopPath, stop); code == http.StatusOK || len(h.Etcd(t)) != 1 {
		t.Errorf("a replayed request: %d: %s", code, body)
	}
	h.audited(t, "replayed", func(l control.Line) bool { return l.Event == control.Refused && l.Code == protocol.Replayed })

	h.KillEtcd(t)
	query := url.Values{"of": {protocol.Current}, "file": {"../control.yaml"}}
	inside := url.Values{"of": {protocol.Current}, "file": {"member/snap/db"}}
	if code, body := ask(t, operator, http.MethodGet, "https://"+h.Control+protocol.DataPath+"?"+inside.Encode(), nil); code != http.StatusOK {
		t.Fatalf("a path inside: %d: %s", code, body)
	}
	if code, body := ask(t, operator, http.MethodGet, "https://"+h.Control+protocol.DataPath+"?"+query.Encode(), nil); code == http.StatusOK || bytes.Contains(body, []byte("client-ca")) {
		t.Errorf("a path outside: %d: %s", code, body)
	}
	h.audited(t, "a path outside", func(l control.Line) bool {
		return l.Event == control.Refused && l.Verb == protocol.Copy && strings.Contains(l.File, "..")
	})
}

// tls trusts the control processes' CA, and has no certificate.
func (s *Site) tls(t *testing.T) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(s.authority.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: pool}
}

func ask(t *testing.T, c *http.Client, method, url string, body []byte) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, data
}

// audited wants a line in the host's audit file, if not at once: a client is told of
// a handshake that failed before the server is.
func (h *Host) audited(t *testing.T, what string, is func(control.Line) bool) {
	t.Helper()
	var data []byte
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var err error
		if data, err = os.ReadFile(filepath.Join(h.StateDir(), "audit.jsonl")); err != nil {
			t.Fatal(err)
		}
		for text := range bytes.Lines(data) {
			var l control.Line
			if json.Unmarshal(text, &l) == nil && is(l) { // the last one may be half written
				return
			}
		}
	}
	t.Errorf("%s: no line in the audit file:\n%s", what, data)
}
