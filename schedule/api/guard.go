package api

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// guard keeps pages of other sites away from h, see the package's second
// promise.
func guard(h http.Handler) http.Handler {
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "refused: the request comes from a page of another site")
	}))
	h = sameOrigin.Handler(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		if overLoopback(r) && !local(r.Host) {
			refuse(w, http.StatusMisdirectedRequest, "refused: over loopback this agent answers to localhost, 127.0.0.1 and [::1] only, not to the name in the request's Host header")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// overLoopback tells that r came in on a loopback address: from this host, and
// perhaps from its browser. Where that cannot be told it is taken for one.
func overLoopback(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return true
	}
	at, err := netip.ParseAddrPort(addr.String())
	return err != nil || at.Addr().Unmap().IsLoopback()
}

// local tells that a Host header names this host without the help of any DNS. A
// site that made its own name resolve to 127.0.0.1 is still called by that name.
func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
