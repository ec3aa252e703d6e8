package localcluster

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/cmd/internal/doctor"
	"github.com/millrace/millrace/cmd/internal/rights"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// applyRoles applies the RBAC roles of Millrace's services, for [users]. The roles have names of
// their own, so that the manifests of deployments can be applied in addition.
func (c *Cluster) applyRoles(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	info, err := client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask the API server for its version: %w", err)
	}
	is := doctor.ServerVersion{Major: info.Major, Minor: info.Minor, GitVersion: info.GitVersion}
	text, err := roles(!is.Constrains())
	if err != nil {
		return err
	}
	return c.applyText(ctx, "roles", text)
}

// roles are the roles of the users Watcher, Writer and Millrace; classic: for an API server that does not
// constrain impersonation.
func roles(classic bool) ([]byte, error) {
	chosen, err := controllers.Select(controllers.Everything(), controllers.Whole())
	if err != nil {
		return nil, fmt.Errorf("choose the controllers of the roles: %w", err)
	}
	m := rights.Manifest{Chosen: chosen, Classic: classic, Custom: []kinds.Name{rights.Any}}
	both := rights.User(string(Millrace))
	m.Watchers("localcluster-watcher", nil, rights.User(string(Watcher)), both)
	m.Writer("localcluster-writer", rights.User(string(Writer)), both)
	m.Tokens("localcluster")
	return m.YAML()
}
