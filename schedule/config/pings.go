package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"
)

// The environment variables that hold secrets.
const (
	EtcdPasswordVariable = "REQUORUM_ETCD_PASSWORD"
	HeartbeatURLVariable = "REQUORUM_HEARTBEAT_URL"
	WebhookURLVariable   = "REQUORUM_WEBHOOK_URL"
)

// HeartbeatURL is where to ping, read anew; empty where nothing is sent.
func (c *Config) HeartbeatURL() (string, error) {
	return c.secretURL("heartbeat", c.Heartbeat.URL, c.Heartbeat.URLFile, HeartbeatURLVariable)
}

// WebhookURL is where to post, read anew; empty where nothing is sent.
func (c *Config) WebhookURL() (string, error) {
	return c.secretURL("webhook", c.Webhook.URL, c.Webhook.URLFile, WebhookURLVariable)
}

func (c *Config) secretURL(section string, inline Secret, file, variable string) (string, error) {
	raw, key := inline.Reveal(), section+".url"
	switch {
	case raw != "":
	case file != "":
		key = section + ".url-file"
		line, err := firstLine(file)
		if err != nil {
			return "", c.fault(key, err)
		}
		raw = line
	default:
		raw = c.getenv(variable)
	}
	if raw == "" {
		return "", nil
	}
	if err := checkURL(raw); err != nil {
		return "", c.fault(key, err)
	}
	return raw, nil
}

// checkURL does not repeat the URL: it is a secret.
func checkURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return errors.New("no URL: write https://host/path")
	}
	return nil
}

// firstLine is a small secret out of a file.
func firstLine(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("the first line of %s is empty: write the secret there", path)
	}
	return line, nil
}

func (k *checker) pings() {
	h, w := k.Heartbeat, k.Webhook
	k.ping("heartbeat", h.URL, h.URLFile, HeartbeatURLVariable, "every", "timeout")
	k.ping("webhook", w.URL, w.URLFile, WebhookURLVariable, "timeout")
	k.positive("heartbeat.every", h.Every, time.Second)
	k.positive("heartbeat.timeout", h.Timeout, 100*time.Millisecond)
	k.positive("webhook.timeout", w.Timeout, 100*time.Millisecond)
	k.refuse(h.Timeout > h.Every, "heartbeat.timeout", "%s is longer than heartbeat.every (%s): write less", h.Timeout, h.Every)
}

func (k *checker) ping(section string, inline Secret, file, variable string, others ...string) {
	k.refuse(inline != "" && file != "", section+".url-file", "there is a URL as well: remove one of them")
	k.absolute(section+".url-file", file)
	if inline != "" {
		k.refuseErr(section+".url", checkURL(inline.Reveal()))
	}
	if inline == "" && file == "" && k.getenv(variable) == "" {
		for _, key := range others {
			k.refuse(k.Given(section+"."+key), section+"."+key, "it has no effect: add %s.url-file, set %s, or remove the line", section, variable)
		}
	}
}
