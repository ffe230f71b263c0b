/* see below: written by the fsm room */
