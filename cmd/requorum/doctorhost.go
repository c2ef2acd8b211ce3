package main

import (
	"bytes"
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
	"syscall"

	"github.com/requorum/requorum/schedule/config"
)

// examineHost looks at what the agent takes of this host: folders, companions, a
// port.
func (e *examination) examineHost(ctx context.Context) {
	if len(e.readingJobs()) > 0 {
		e.examineFolder("resources.scratch-dir", e.agent.Resources.ScratchDir, false)
	}
	if e.agent.Archiving() {
		e.examineFolder("archive.spool-dir", e.agent.Archive.SpoolDir, true)
	}
	for _, c := range e.agent.Companions {
		e.examineCompanion(c)
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

// examineCompanion opens each file of a companion.
func (e *examination) examineCompanion(c config.Companion) {
	check, files := "companion "+c.Name, 0
	err := filepath.WalkDir(c.Path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		files++
		return f.Close()
	})
	switch {
	case err != nil:
		e.failed(check, err, "mend the path in companions, or let the agent's user read it")
	case files == 0:
		e.add(checkFail, check, c.Path+" holds no file", "mend the path in companions, or remove it")
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
		e.failed(check, err, "end what listens there (ss -ltnp tells), or write another port to listen.address")
	default:
		e.failed(check, err, "write an address of this host to listen.address")
	}
}

// isAgent tells whether the agent of this configuration listens there already: it
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

// showsCertificate tells whether a port has the certificate of listen.cert.
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

// examineURLs connects to where is pinged. Nothing is sent: a ping would say that
// all is well. The URLs are secrets, their hosts are not.
func (e *examination) examineURLs(ctx context.Context) {
	for _, u := range []struct {
		check string
		get   func() (string, error)
	}{{"heartbeat", e.agent.HeartbeatURL}, {"webhook", e.agent.WebhookURL}} {
		raw, err := u.get()
		if err != nil || raw == "" {
			continue // told already, or not wanted
		}
		target, err := url.Parse(raw)
		if err != nil {
			continue // it was parsed before
		}
		port := target.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[target.Scheme]
		}
		address := net.JoinHostPort(target.Hostname(), port)
		if err := reach(ctx, address); err != nil {
			e.failed(u.check, err, "mend "+u.check+".url or "+u.check+".url-file, or let this host connect there")
			continue
		}
		e.add(checkOK, u.check, address+" can be reached; nothing was sent", "")
	}
}
