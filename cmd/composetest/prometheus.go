package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// observe starts Prometheus, which must find every service and load our rules.
func observe(ctx context.Context, s *stage) (string, error) {
	if err := s.do(ctx, "--profile", "observability", "up", "-d", "prometheus"); err != nil {
		return "", err
	}
	var up, forbidden float64
	var alerts int
	err := poll(ctx, func() (err error) {
		if up, err = s.query(ctx, `sum(up{job=~".*(watcher|reconcilers|writer|provisioner|notary).*"})`); err != nil {
			return err
		}
		if up < 5 {
			return fmt.Errorf("prometheus reads %v of our services", up)
		}
		if alerts, err = s.rules(ctx); err != nil {
			return err
		}
		forbidden, err = s.query(ctx, "sum(millrace_bus_forbidden_total)")
		return err
	})
	if err == nil && forbidden > 0 {
		err = fmt.Errorf("the bus has forbidden our services %v things that they need", forbidden)
	}
	return fmt.Sprintf("prometheus reads %v of our services, and watches %d alerts", up, alerts), err
}

// query asks Prometheus for one number.
func (s *stage) query(ctx context.Context, expression string) (float64, error) {
	var answer struct {
		Data struct {
			Result []struct {
				Value [2]any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := get(ctx, s.at("http", "PROMETHEUS_PORT")+"/api/v1/query?query="+url.QueryEscape(expression), &answer); err != nil {
		return 0, err
	}
	if len(answer.Data.Result) != 1 {
		return 0, fmt.Errorf("prometheus knows nothing of %s", expression)
	}
	text, _ := answer.Data.Result[0].Value[1].(string)
	return strconv.ParseFloat(text, 64)
}

// rules counts Prometheus' alerting rules; each rule must be healthy.
func (s *stage) rules(ctx context.Context) (int, error) {
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Type, Health, LastError string } `json:"rules"`
			} `json:"groups"`
		} `json:"data"`
	}
	if err := get(ctx, s.at("http", "PROMETHEUS_PORT")+"/api/v1/rules", &answer); err != nil {
		return 0, err
	}
	alerts := 0
	for _, group := range answer.Data.Groups {
		for _, rule := range group.Rules {
			if rule.Health != "ok" {
				return 0, fmt.Errorf("rule %s is %s: %s", rule.Name, rule.Health, rule.LastError)
			}
			if rule.Type == "alerting" {
				alerts++
			}
		}
	}
	if alerts == 0 {
		return 0, errors.New("prometheus has no alerting rule")
	}
	return alerts, nil
}

func get(ctx context.Context, address string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("ask prometheus: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask prometheus: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask prometheus: %s", response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("read prometheus' answer: %w", err)
	}
	return nil
}
