"""What a robot is: bodies, joints, numbers; where it comes from, and how it is changed."""
