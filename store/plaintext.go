package store

import (
	"fmt"
	"net"
	"net/url"
)

// checkListeners refuses what etcd would start with, or refuse less clearly: a
// listener that the network can reach and that anybody could read and write
// through, and https without a certificate.
func (c MemberConfig) checkListeners(what string, urls []url.URL, files TLSFiles) error {
	if (files.Cert == "") != (files.Key == "") {
		return fmt.Errorf("store: member %s: %s: TLS needs both a certificate and a key", c.Name, what)
	}
	if files.ClientCertAuth && files.CA == "" {
		return fmt.Errorf("store: member %s: %s: client certificates are demanded and no CA to verify them is given", c.Name, what)
	}
	for _, u := range urls {
		switch u.Scheme {
		case "https", "unixs":
			if files.Cert == "" {
				return fmt.Errorf("store: member %s: %s %s needs a certificate and a key", c.Name, what, u.String())
			}
		case "unix":
		case "http":
			if files.Cert != "" {
				return fmt.Errorf("store: member %s: %s %s is plain text although a certificate is given; write https://", c.Name, what, u.String())
			}
			if !loopback(u.Hostname()) && !c.AllowPlaintext {
				return fmt.Errorf("store: member %s: %s %s would let anybody on the network read and write without TLS; use https:// with a certificate, a loopback address, or allow plain text explicitly", c.Name, what, u.String())
			}
		default:
			return fmt.Errorf("store: member %s: %s %s: want http, https, unix or unixs", c.Name, what, u.String())
		}
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
