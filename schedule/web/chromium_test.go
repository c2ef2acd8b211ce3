//go:build unix

package web

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// browser is a headless Chromium that is driven over a pipe (the DevTools
// protocol: JSON, each message ended by a zero byte).
type browser struct {
	t       *testing.T
	out     *os.File
	session string

	mu      sync.Mutex
	next    int
	waiting map[int]chan message
	events  []message
}

type message struct {
	ID        int             `json:"id,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// startBrowser skips, loudly, where there is no Chromium, and fails there under
// REQUORUM_CI=1.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		if os.Getenv("REQUORUM_CI") == "1" {
			t.Fatal("there is no chromium: the status page is not tested in a browser (apt-get install chromium)")
		}
		t.Skip("SKIPPED: there is no chromium: the status page is not tested in a browser (apt-get install chromium)")
	}
	in, inChild, err := os.Pipe()
	require.NoError(t, err)
	outChild, out, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--hide-scrollbars", "--force-color-profile=srgb", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{outChild, inChild}        // its 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with all its helpers
	require.NoError(t, cmd.Start())
	outChild.Close()
	inChild.Close()
	b := &browser{t: t, out: out, waiting: map[int]chan message{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.listen(bufio.NewReaderSize(in, 1<<20))
	}()
	t.Cleanup(func() {
		_, _ = b.try("Browser.close", nil, "")
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // helpers write into its folder, which is removed now
		<-ended
		out.Close()
		in.Close()
		<-done
	})
	return b
}

func (b *browser) listen(r *bufio.Reader) {
	for {
		line, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(line[:len(line)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if m.ID != 0 {
			if c := b.waiting[m.ID]; c != nil {
				c <- m
				delete(b.waiting, m.ID)
			}
		} else {
			b.events = append(b.events, m)
		}
		b.mu.Unlock()
	}
}

func (b *browser) try(method string, params any, session string) (json.RawMessage, error) {
	answer := make(chan message, 1)
	b.mu.Lock()
	b.next++
	m := map[string]any{"id": b.next, "method": method}
	if params != nil {
		m["params"] = params
	}
	if session != "" {
		m["sessionId"] = session
	}
	b.waiting[b.next] = answer
	b.mu.Unlock()
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if _, err := b.out.Write(append(body, 0)); err != nil {
		return nil, err
	}
	select {
	case got := <-answer:
		if got.Error != nil {
			return nil, errors.New(method + ": " + got.Error.Message)
		}
		return got.Result, nil
	case <-time.After(60 * time.Second):
		return nil, errors.New(method + ": no answer within a minute")
	}
}

// call sends a command to the tab, and decodes what it answers into result.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	raw, err := b.try(method, params, b.session)
	require.NoError(b.t, err)
	if result != nil {
		require.NoError(b.t, json.Unmarshal(raw, result), method)
	}
}

type look struct {
	width    int
	dark     bool
	noScript bool
}

// open loads url in a new tab of that look, and returns when all is loaded.
func (b *browser) open(url string, l look) {
	b.t.Helper()
	b.session = ""
	var made struct{ TargetID, SessionID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &made)
	b.call("Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &made)
	b.session = made.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": l.width, "height": 800, "deviceScaleFactor": 1, "mobile": l.width < 500}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": l.noScript}, nil)
	b.mu.Lock()
	b.events = nil // that the empty tab was loaded is one
	b.mu.Unlock()
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.until("the page is loaded", func() bool { return len(b.seen("Page.loadEventFired")) > 0 })
}

// seen are the parameters of this tab's events of that name.
func (b *browser) seen(method string) []json.RawMessage {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []json.RawMessage
	for _, e := range b.events {
		if e.Method == method && e.SessionID == b.session {
			all = append(all, e.Params)
		}
	}
	return all
}

func (b *browser) until(what string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(60 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("a minute went by, and not: %s", what)
		}
	}
}

// eval evaluates an expression in the tab. It works without scripts too: the
// debugger may, the page may not.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	var got struct {
		Result           struct{ Value T }
		ExceptionDetails *struct{ Text string }
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &got)
	if got.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, got.ExceptionDetails.Text)
	}
	return got.Result.Value
}

// screenshot is the whole page as a PNG.
func (b *browser) screenshot() []byte {
	b.t.Helper()
	var got struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &got)
	png, err := base64.StdEncoding.DecodeString(got.Data)
	require.NoError(b.t, err)
	return png
}
