package command

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events/record/recordtest"
)

// TestThePageNeedsOnlyTheReader: with the rights of the reader the page shows objects and
// happenings.
func TestThePageNeedsOnlyTheReader(t *testing.T) {
	b, address := guarded(t)
	teller, err := recordtest.New(t.Context(), b, recordtest.ShopKinds, []string{recordtest.Deployments, recordtest.ReplicaSets})
	ok(t, err)
	_, err = recordtest.OpenShop(t.Context(), teller)
	ok(t, err)
	ok(t, teller.Close())
	notes, said := io.Pipe()
	cmd := newUI()
	cmd.SetErr(said)
	cmd.SetArgs([]string{"--listen=127.0.0.1:0", "--nats-url=" + address})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx); _ = said.Close() }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the page ended with: %v", err)
		}
	}()
	line, err := bufio.NewReader(notes).ReadString('\n')
	_, at, found := strings.Cut(strings.TrimSpace(line), "The page is at ")
	if !found {
		t.Fatalf("the page says %q (%v)", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, notes) }()
	at, token, found := strings.Cut(at, "?token=")
	if !found {
		t.Fatalf("the address %q has no token", line)
	}
	if answer, err := http.Get(at + "api/overview"); err != nil || answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the token: %v, %v", answer, err)
	}
	for question, says := range map[string]string{
		"overview":                       "deployments.apps",
		"state?kind=pods&namespace=shop": "web-1",
		"history?kind=deployments.apps&namespace=shop&name=web": "kubectl-scale",
		"why?kind=replicasets.apps&namespace=shop&name=web-1":   "kubectl-scale",
		"lag": "lags",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+"api/"+question, nil)
		ok(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(text), says) {
			t.Errorf("%s is answered with %s %s (%v), without %s", question, response.Status, text, err, says)
		}
	}
}
