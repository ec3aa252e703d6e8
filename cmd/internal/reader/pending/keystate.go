package pending

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/report"
)

// processes are running reconcilers and writers to ask for the state of a key.
type processes struct {
	addresses []string
	tokenFile string
}

func (p *processes) add(f *pflag.FlagSet) {
	f.StringSliceVar(&p.addresses, "live", p.addresses,
		"`addresses` of running reconcilers and writers, such as http://127.0.0.1:10260, to ask for the present state of the key; certificates are not verified on loopback")
	f.StringVar(&p.tokenFile, "live-token-file", p.tokenFile, "`file` with the bearer token for them (default: none, which is enough on the same machine)")
}

// maxKeyReport bounds the answer of a process, in bytes.
const maxKeyReport = 4 << 20

// keyReport is a process's state of a key.
type keyReport struct {
	Address string `json:"address"`
	report.KeyReport
}

// ask asks every process for its state of a key of a controller.
//
// Errors: a process does not answer, refuses, or sends an invalid answer. The error names the
// process and says what to do.
func (p *processes) ask(ctx context.Context, controller string, key events.Key) (all []keyReport, err error) {
	token := ""
	if p.tokenFile != "" {
		text, err := os.ReadFile(p.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("read --live-token-file: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	for _, address := range p.addresses {
		r := keyReport{Address: address}
		if r.KeyReport, err = askKey(ctx, address, token, controller, key); err != nil {
			return nil, fmt.Errorf("ask --live=%s: %w", address, err)
		}
		all = append(all, r)
	}
	return all, nil
}

func askKey(ctx context.Context, address, token, controller string, key events.Key) (r report.KeyReport, err error) {
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return r, fmt.Errorf("it is no address: write it as http://HOST:PORT, the service's --health-address")
	}
	page := base.JoinPath("debug", "keys", url.PathEscape(controller), url.PathEscape(cmp.Or(key.Namespace, "-")), url.PathEscape(key.Name))
	if key.Kind != "" {
		page.RawQuery = url.Values{"kind": {string(key.Kind)}}.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page.String(), nil)
	if err != nil {
		return r, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: loopback(base.Hostname())}, DisableKeepAlives: true,
	}}
	response, err := client.Do(request)
	if err != nil {
		return r, fmt.Errorf("%w; does the service run, and is that its --health-address?", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxKeyReport))
	switch {
	case err != nil:
		return r, err
	case response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden:
		return r, fmt.Errorf("it answers %s: give the token of its --metrics-token-file with --live-token-file", response.Status)
	case response.StatusCode != http.StatusOK:
		return r, fmt.Errorf("it answers %s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("read its answer: %w", err)
	}
	return r, nil
}

// loopback is whether a host is the loopback interface of this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func drawKeyReport(p *printer.Paper, r keyReport) {
	if s := r.Reconcilers; s != nil {
		p.Line("now, at %s: %s", r.Address, p.In(printer.Bold, s.Reason))
		for _, c := range s.Checks {
			if c.Holds {
				drawKeyCheck(p, c)
			}
		}
		if !s.Known {
			p.Line("   %s", p.In(printer.Dim, "this process has not had to do with the key"))
		}
	}
	for _, t := range r.Writer {
		p.Line("now, at %s: the writer has %s turn %d since %s, delivered %d times; its claim is %s", r.Address, t.Lane, t.Turn, printer.Time(t.Stored), t.Attempt, t.Claim)
	}
	if r.Reconcilers == nil && len(r.Writer) == 0 {
		p.Line("now, at %s: the writer has no turn of the key", r.Address)
	}
}

func drawKeyCheck(p *printer.Paper, c report.KeyCheck) {
	line := fmt.Sprintf("%s: %s", c.Condition, c.Reason)
	if c.About != "" {
		line += ": " + c.About
	}
	if c.Since != nil {
		line += ", since " + printer.Time(*c.Since)
	}
	if c.Until != nil {
		line += ", until " + printer.Time(*c.Until)
	}
	p.Line("   %s", p.In(printer.Red, line))
	if advice := c.Condition.Advice(); advice != "" {
		p.Line("   %s", p.In(printer.Dim, advice))
	}
}
