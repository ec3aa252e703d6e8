package process

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealthcheckAsks(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			http.Error(w, "[-]bus failed: no answer", http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	for _, address := range []string{"127.0.0.1:" + port, "0.0.0.0:" + port, ":" + port} {
		if err := askHealth(t.Context(), "http", address, "/readyz"); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	err := askHealth(t.Context(), "http", "127.0.0.1:"+port, "/livez")
	if err == nil || !strings.Contains(err.Error(), "bus failed") {
		t.Errorf("of a service that is not well: %v", err)
	}
	if err := askHealth(t.Context(), "http", "nowhere", "/livez"); err == nil || !strings.Contains(err.Error(), "--health-address") {
		t.Errorf("of no address: %v", err)
	}
	server.Close()
	if err := askHealth(t.Context(), "http", "127.0.0.1:"+port, "/readyz"); err == nil {
		t.Error("no server listens, and all is said to be well")
	}
}
