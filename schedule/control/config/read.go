package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	agent "github.com/requorum/requorum/schedule/config"
)

// Read reads a file. It is refused where others than its owner can write to it:
// it holds commands that run as root.
func Read(path string) (*Config, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("the configuration of agent control: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return nil, fmt.Errorf("%s has mode %#o: whoever can write to it could run commands as this process: chmod go-w %s", path, mode, path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the configuration of agent control: %w", err)
	}
	return Parse(data, path)
}

// Parse reads a configuration, and looks at no file. Its error holds all faults.
func Parse(data []byte, name string) (*Config, error) {
	c := Default()
	places, err := agent.Strict(data, name, Guide, c)
	if places == nil {
		return nil, err
	}
	faults := []error{err}
	for _, f := range c.contradictions(places) {
		faults = append(faults, places.Fault(f.key, f.err))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	c.derive()
	return c, nil
}

func (c *Config) derive() {
	if c.AuditFile == "" {
		c.AuditFile = filepath.Join(c.StateDir, "audit.jsonl")
	}
	m := &c.Member
	m.DataDir = filepath.Clean(m.DataDir)
	if m.WALDir != "" {
		m.WALDir = filepath.Clean(m.WALDir)
	}
	if m.Store.LogFile == "" {
		m.Store.LogFile = filepath.Join(c.StateDir, m.Name+".log")
	}
	m.StaticPod.deriveAside()
	c.deriveClients()
}

func (p *StaticPodMember) deriveAside() {
	if p.AsideDir == "" && p.Manifest != "" {
		p.AsideDir = filepath.Join(filepath.Dir(filepath.Dir(p.Manifest)), "requorum-manifests")
	}
}
