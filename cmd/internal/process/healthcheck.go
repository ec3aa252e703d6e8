package process

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/program"
)

// NewHealthcheck is the command for a container's health check, because the image has no
// program other than this one.
func NewHealthcheck() *cobra.Command {
	service, page, patience := NewOptions(), "/readyz", 5*time.Second
	return program.Program{
		Use: "healthcheck", Short: "Ask a service on this machine whether it is ready",
		Long: `Asks the service that listens on --health-address. The exit code is 0 if it is ready.
The address is read from the same settings as the service's.`,
		Flags: []func(*pflag.FlagSet){func(f *pflag.FlagSet) {
			service.addressOptions.add(f, "`address` of the service's /healthz, /livez and /readyz")
			service.tls.add(f)
			f.StringVar(&page, "page", page, "`path` to ask for")
			f.DurationVar(&patience, "timeout", patience, "time limit for the answer")
		}},
		Run: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			address, secure, err := service.Address()
			if err != nil {
				return err
			}
			scheme := "http"
			if secure || service.tls.alone() {
				scheme = "https"
			}
			return askHealth(ctx, scheme, address, page)
		},
	}.Command()
}

// askHealth asks the service that listens on an address. It asks localhost for the
// unspecified address, and does not verify the certificate, because the service is on
// this machine.
func askHealth(ctx context.Context, scheme, address, page string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("read --health-address: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+net.JoinHostPort(host, port)+page, nil)
	if err != nil {
		return fmt.Errorf("read --page: %w", err)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask for health: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err != nil {
		return fmt.Errorf("read the answer about health: %w", err)
	}
	return fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(text)))
}
